/* compiler.h -- the only place with compiler-specific spellings. */
#ifndef LS_BASE_COMPILER_H
#define LS_BASE_COMPILER_H

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define LS_SANITIZED 1
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define LS_SANITIZED 1
#endif
#endif

/* An elementwise kernel that the compiler vectorises once per instruction set
 * and picks at load time, so that one binary runs everywhere. Sanitizers and
 * load-time resolvers do not get on, and clang has no such options for one
 * function: there the plain version runs. */
#if defined(__x86_64__) && !defined(LS_SANITIZED) && !defined(__clang__)
#define LS_CLONES target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")
#define LS_KERNEL __attribute__((LS_CLONES, optimize("O3")))
/* The same for loops that choose (tensor/vecmath.h does): both sides are computed and one is taken, instead of
 * masking every step. 15 % faster, the same bits. */
#define LS_KERNEL_CHOOSING __attribute__((LS_CLONES, optimize("O3", "no-trapping-math", "no-thread-jumps")))
#else
#define LS_KERNEL
#define LS_KERNEL_CHOOSING
#endif

/* Before a loop of a kernel: arrays in it may be the same one, but no round reads what
 * another writes. So the compiler need not ask before it vectorises. */
#if defined(__GNUC__) && !defined(__clang__)
#define LS_INDEPENDENT _Pragma("GCC ivdep")
#else
#define LS_INDEPENDENT
#endif

/* ThreadSanitizer does not know fences. */
#if defined(__SANITIZE_THREAD__)
#define LS_FENCE_ACQUIRE() ((void)0)
#define LS_FENCE_RELEASE() ((void)0)
#else
#define LS_FENCE_ACQUIRE() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define LS_FENCE_RELEASE() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#define LS_COLD __attribute__((cold, noinline))
#define LS_ALWAYS_INLINE inline __attribute__((always_inline))
#define LS_LIKELY(x) __builtin_expect(!!(x), 1)
#define LS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LS_THREAD_LOCAL _Thread_local
#define LS_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

static inline void ls_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
