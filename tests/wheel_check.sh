#!/usr/bin/env bash
# What an agent's image gets: the bare wheel in an empty venv, and the SDK used alone.
set -euo pipefail
python="$1" work="$2"
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT

"$python" -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir "$work" .
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -qq --disable-pip-version-check "$work"/flightlog-*.whl
"$work/venv/bin/python" -I -W error tests/wheel_check.py
