# Thin: every target is one preset or one script. `make demo` and `make test` do all the set-up.
JOBS ?= $(shell nproc)

.PHONY: all setup build demo test check sanitize bench format clean

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
