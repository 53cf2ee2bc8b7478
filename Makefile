# Thin: every target is one preset or one script. `make demo` and `make test` do all the set-up.
JOBS ?= $(shell nproc)

.PHONY: all setup build demo test test-rdma check sanitize bench format clean

all: build

setup:
	@tools/setup.sh

build: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

demo: build
	@tools/demo.sh

test: build
	@ctest --test-dir build --output-on-failure

# RDMA in a virtual machine with soft adapters; prints why it is skipped where there can be none.
test-rdma: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target test_net
	@tests/net/vm/run.sh build/tests/test_net

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
