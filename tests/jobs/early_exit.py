"""Imports TensorFlow and ends before a step."""

import sys

import tensorflow as tf

from arguments import parser, recording

arguments = parser(__doc__)
arguments.add_argument("--code", type=int, default=0, help="the exit code")
args = arguments.parse_args()
with recording(args):
    print(f"TensorFlow {tf.__version__}: nothing to train")
sys.exit(args.code)
