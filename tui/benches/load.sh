#!/usr/bin/env bash
# How quick the terminal UI is while a capture of a million frames is loaded, once for each view, its list being paged through: what a screen
# takes at 160×48 (99 % under 16 ms by the clock and of the processor, else this fails), time to the first screen, bytes of index a frame. The
# capture is made from samples/smb-roce, between other hosts each time, so that there are many connections; CAPTURE=FILE takes another one.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec cargo test --release --package rdmascope-screens --lib -- --ignored --nocapture a_million_frames
