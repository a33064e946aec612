#!/bin/sh
# run.sh BUILD_DIR OUT_DIR [--only GLOB] [options]: all GPU tests and the benchmark; see run_gpu.py --help.
exec python3 "$(dirname "$0")/run_gpu.py" "$@"
