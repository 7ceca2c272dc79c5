#!/bin/sh
# A launcher as many have one: it sets the environment and calls Python as a child.
set -eu
export TF_CPP_MIN_LOG_LEVEL=1
echo "starting"
"$PYTHON" "$(dirname "$0")/gradient_tape.py" "$@"
echo "ended"
