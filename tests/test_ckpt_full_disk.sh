#!/bin/bash
# A real file system that is full, then read-only: the save fails with 74 and a
# sentence, the older checkpoint stays, nothing is left behind. Needs a mount
# namespace (root, or user namespaces); where there is none, it says so.
. "$(dirname "$0")/harness.sh"

if [ "${LOCKSTEP_TINY_DISK:-}" = '' ]; then
    for how in 'unshare -m' 'unshare -rm'; do
        if $how mount -t tmpfs -o size=64k tmpfs "$tmp" 2>/dev/null; then
            rm -rf "$tmp"
            LOCKSTEP_TINY_DISK=1 exec $how bash "$0" "$build"
        fi
    done
    echo 'skipped: no mount namespace here, so no small disk to fill'
    finish
fi

disk=$tmp/disk
mkdir "$disk"
mount -t tmpfs -o size=64k tmpfs "$disk" || exit 1
model=$disk/model.safetensors
save() { # hidden width
    "$build"/examples/train_single --epochs 1 --d-in 8 --d-hidden "$1" --d-out 4 --out "$model"
}

claim 'a model that fits is saved' save 16
old=$(md5sum <"$model")
claim 'one that does not: 74, what and where' fails_with 74 'error[ckpt-failed]' save 4096
claim 'with the reason' fails_with 74 'No space left on device' save 4096
claim 'with the bytes it needs and the folder' fails_with 74 "bytes in $disk" save 4096
claim 'the older checkpoint stays as it was' test "$(md5sum <"$model")" = "$old"
claim 'and still verifies' "$build/lockstep" ckpt verify "$model"
claim 'nothing else is left' test "$(ls -A "$disk")" = model.safetensors

mount -o remount,ro "$disk"
claim 'on a read-only disk: 74' fails_with 74 'Read-only file system' save 16
claim 'the older checkpoint stays' test "$(md5sum <"$model")" = "$old"
mount -o remount,rw "$disk"
claim 'with room again it is replaced' save 32
claim 'by a file that verifies' "$build/lockstep" ckpt verify "$model"
umount "$disk"
finish
