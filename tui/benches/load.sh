#!/usr/bin/env bash
# How quick the terminal UI is while a capture of a million frames is loaded: time of the first screen, of each screen drawn meanwhile
# (99 % under 16 ms, else this fails), and bytes of index a frame. The capture is made from samples/smb-roce.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec cargo test --release --package rdmascope --bin rdmascope -- --ignored --nocapture a_million_frames
