# Thin: every target is one preset or one script. `make demo` and `make test` do all the set-up.
JOBS ?= $(shell nproc)

.PHONY: all setup build demo test test-full test-rdma test-rdma-hosts test-ptx gpu-test gpu-bench gpu-pack check sanitize bench format clean

all: build

setup:
	@tools/setup.sh

build: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target all benches

# The command line alone: tests and benchmarks take most of a build.
demo: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target sinew
	@tools/demo.sh

test: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@ctest --test-dir build -j $(JOBS) --output-on-failure

# Every operation, algorithm, type, reduction, placement and size class of the collectives, where `make test` takes
# samples, and messages of more than 2^31 bytes where memory allows; proofs for up to 1024 ranks; every layout of a
# transformer against one rank; a million small collectives and a thousand killed ranks. Each part says how long it
# took. Allow two hours on two cores. Some parts: PARTS="soak kills" make test-full
test-full: build
	@tools/test_full.sh $(PARTS)

# RDMA in a virtual machine with soft adapters; prints why it is skipped where there can be none.
test-rdma: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target test_net
	@tests/net/vm/run.sh build/tests/test_net

# Two virtual machines as two hosts: every collective over verbs between them. Beside test-rdma and not in it: both
# emulate all that they run, on the same cores.
test-rdma-hosts: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target test_net_hosts
	@tests/net/vm/two.sh build/tests/test_net_hosts

# The device tests on kernels from nvcc's PTX, interpreted; prints why it is skipped where there is no nvcc.
test-ptx: setup
	@cmake --preset release >/dev/null
	@tests/gpu/ptx/run.sh $(JOBS)

# On a machine with a GPU, with or without MPI: every check, and every measurement, with results in bench/results.
# Each says what is missing where there is none.
gpu-test:
	@tools/gpu_test.sh test

gpu-bench:
	@tools/gpu_test.sh bench

# Their programs in build/gpu_programs, for a GPU where they cannot be built: PROGRAMS=build/gpu_programs make gpu-test
gpu-pack:
	@tools/gpu_pack.sh build/gpu_programs

check:
	@tools/check.sh

sanitize: setup
	@tools/sanitize.sh $(JOBS)

bench: build
	@bench/run.sh

format:
	@git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

clean:
	@rm -rf build
