# The front door. CMake and ninja do the work; `make` alone lists what there is.

BUILD   := build
PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= 2
ARGS    ?=
RECIPE  ?= recipes/gpt2-tiny.yaml

# On a terminal ninja shows its progress; elsewhere only what goes wrong.
SHELL   := /bin/bash
TTY     := $(shell [ -t 2 ] && echo yes)
NINJA    = $(if $(TTY),ninja -C $(1) $(2),ninja --quiet -C $(1) $(2) | grep -v 'no work to do'; exit $${PIPESTATUS[0]})
MAKEME  := $(MAKE) --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup build labs train test test-clang test-fresh test-long mutate verify bench bench-peers bench-train bench-zero bench-zero-hosts bench-parallel bench-plan bench-ckpt check fit book book-test results deb asan tsan fuzz install clean

help:
	@echo 'make train             set up, build, a GPT learns English on 2 ranks         (RECIPE=..., ARGS="--train.steps 500")'
	@echo 'make test              set up, build, run every test                        (JOBS=$(JOBS))'
	@echo 'make test-long         the tests under both sanitizers, the long ones, a minute of fuzzing per parser'
	@echo 'make test-clang        suites named in tests/clang_suites, built with clang, ASan and UBSan'
	@echo 'make test-fresh        both commands of README.md in a minimal Debian: as root, as a user (needs root; part of test-long)'
	@echo 'make bench             build and run the benchmarks'
	@echo 'make bench-peers       Lockstep beside Open MPI, MPICH, Intel MPI, Gloo, torch  (ARGS="--quick")'
	@echo 'make bench-train       training beside PyTorch 1.13, the newest PyTorch, llm.c    (ARGS="--quick")'
	@echo 'make bench-zero        ZeRO beside DDP: steps, memory                   (ARGS="--passes 3")'
	@echo 'make bench-zero-hosts  DDP, HSDP and FSDP over two emulated hosts, and their predictions  (needs root)'
	@echo 'make bench-parallel    ranks that divide layers, sequences, experts, beside PyTorch  (ARGS="--only experts")'
	@echo 'make bench-plan        planner and simulator beside their targets: speed, closed forms, errors of predictions'
	@echo 'make bench-ckpt        checkpoints beside dd, memcpy, PyTorch            (ARGS="--turns 1")'
	@echo 'make labs              claims about distributed training, with their controls, and the exercises of the labs'
	@echo 'make check             style, floors, system calls, exports, public headers, documentation'
	@echo 'make book              the handbook as pages: $(BUILD)/book/index.html opens from disk'
	@echo 'make book-test         the pages in a browser, without a network: errors, links, widths, axe, keyboard, print'
	@echo 'make results           run the commands whose numbers the handbook has, and write them into it'
	@echo 'make asan, make tsan   the tests under AddressSanitizer and UBSan, under ThreadSanitizer'
	@echo 'make fit               fit the planner to measurements, with 5-fold cross-validation    (ROWS=measurements.csv)'
	@echo 'make build             only build: build/lockstep, build/liblockstep.{a,so}'
	@echo 'make mutate            break the code a line at a time, and see that a test notices  (ARGS="--only optim")'
	@echo 'make verify            all of these for HEAD, in a clone; stopped, it goes on     (ARGS=--list)'
	@echo 'make deb               Debian packages: lockstep, liblockstep0, liblockstep-dev, in build-deb'
	@echo 'make install           into $$DESTDIR$$PREFIX                                 (PREFIX=$(PREFIX))'
	@echo 'make clean             remove what was built; runs/ stays'

# Installs what is missing; some milliseconds when nothing is.
setup:
	@scripts/setup

# Once; later CMake runs again by itself when its input changes.
CONFIGURE = [ -e $(1)/build.ninja ] || { echo 'building in $(1)'; cmake --preset $(2) -B $(1) >/dev/null; }

build: setup
	@$(call CONFIGURE,$(BUILD),release)
	@$(call NINJA,$(BUILD))

# RECIPE=recipes/fashion-mnist.yaml trains on images instead.
train:
	@scripts/setup $(if $(findstring mnist,$(RECIPE)),--data,--text)
	@$(call CONFIGURE,$(BUILD),release)
	@$(call NINJA,$(BUILD),lockstep_cli)
	@exec scripts/train $(BUILD)/lockstep $(RECIPE) $(ARGS)

# The claims of every lab on this machine, and their controls, in which they have to fail; then the exercises: each task, its
# solution and its typical wrong answers.
labs: build
	@tools/labs $(BUILD) $(ARGS)

test: build
	@scripts/setup --figures
	@$(call NINJA,$(BUILD)) # figures, where their compiler was missing
	@tools/run-tests $(BUILD) -j $(JOBS)

# Writes src/plan/constants.c (the next build compiles it) and the points and pictures of docs/planner.md. Without ROWS it draws the
# committed points again.
fit: build
	@$(if $(ROWS),$(BUILD)/tools/fit_planner $(ROWS) src/plan/constants.c docs/planner-points.csv)
	@tools/draw-fit docs/planner-points.csv docs $(if $(ROWS),,--table)

asan tsan: setup
	@$(call CONFIGURE,build-$@,$@)
	@$(call NINJA,build-$@)
	@tools/run-tests build-$@ -j $(JOBS) --timeout 3600 # under ThreadSanitizer the examples of a page take half an hour

test-clang: setup
	@scripts/setup --clang
	@$(call CONFIGURE,build-clang,clang)
	@$(call NINJA,build-clang,lockstep_cli example_train_single $(shell grep -oE '^test_[a-z0-9_]+ ' tests/clang_suites))
	@tools/run-tests build-clang -j $(JOBS) --list tests/clang_suites

test-fresh: build
	@scripts/setup --fresh
	@bash tests/long_fresh.sh $(BUILD)

fuzz: setup
	@scripts/setup --clang
	@tools/run-fuzz 60

test-long: build
	@$(MAKEME) asan
	@$(MAKEME) tsan
	@$(MAKEME) fuzz
	@scripts/setup --viewer --fresh --deb --strace --book
	@tools/run-tests $(BUILD) -j $(JOBS) --long

# More than half an hour on two cores; ARGS="--write FILE" keeps the result of each mutant.
mutate: setup
	@tools/mutate $(ARGS)

verify:
	@tools/verify $(ARGS)

bench: build
	@bench/run $(BUILD)

# Peers that cannot be installed are left out, with the reason.
bench-peers: build
	@scripts/setup --peers || true
	@bench/peers/build $(BUILD)
	@bench/peers/compare --build $(BUILD) $(ARGS)

bench-train: build
	@scripts/setup --peers --text || true
	@bench/train/fetch
	@bench/train/build $(BUILD)
	@bench/train/compare --build $(BUILD) $(ARGS)

bench-zero: build
	@bench/train/build $(BUILD)
	@bench/zero --build $(BUILD) --memory
	@bench/zero --build $(BUILD) $(ARGS)

bench-zero-hosts: build
	@bench/zero-hosts --build $(BUILD) $(ARGS)

bench-parallel: build
	@bench/train/build $(BUILD)
	@bench/parallel --build $(BUILD) $(ARGS)

bench-plan: build
	@$(BUILD)/bench/bench_sim $(ARGS)
	@echo
	@$(BUILD)/bench/bench_plan
	@echo
	@tools/draw-fit docs/planner-points.csv --table

bench-ckpt: build
	@bench/train/build $(BUILD)
	@bench/ckpt --build $(BUILD) $(ARGS)

book: build
	@$(BUILD)/tools/book . $(BUILD)/book $$(ls $(BUILD)/book/figures.js 2>/dev/null)

book-test: build
	@scripts/setup --book
	@tools/run-tests $(BUILD) --long long_book

results: build
	@tools/results $(BUILD)

check: build
	@scripts/setup --check
	@tools/check $(BUILD)

install: setup
	@cmake --preset release -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@$(call NINJA,$(BUILD))
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)

# Looked over by lintian; tests/long_deb.sh installs them in a minimal Debian.
deb: setup
	@scripts/setup --deb
	@scripts/deb

clean:
	rm -rf build build-asan build-deb build-clang build-tsan build-fuzz build-mutate build-verify
