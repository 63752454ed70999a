//! `rdmascope tui`: starts `rdmascope-screens`.

use crate::cli::{Color, Tui};
use anyhow::Result;
use rdmascope_analyzer::env::Options;
use rdmascope_screens::{From, Setup};
use std::process::ExitCode;

/// `are_rules_given` is true if the user has replaced rules: findings depend on them.
pub(super) fn run(args: Tui, color: Color, are_rules_given: bool) -> Result<ExitCode> {
    let Tui { files, live, filter, follow, pins, keys, no_crc, no_index, ignore } = args;
    let options = Options {
        check_crc: !no_crc,
        pins: pins.iter().map(|p| (p.0, p.1)).collect(),
        keyring: crate::input::keyring(keys.as_deref())?,
        ..Options::default()
    };
    let from = if live.interfaces.is_empty() {
        From::Files { paths: files, follow }
    } else {
        From::Live {
            interfaces: live.interfaces.clone(),
            rdma_root: live.rdma_root.clone(),
            open: Box::new(move |stop| Ok(crate::live::open(&live, stop, 1)?.0)),
        }
    };
    rdmascope_screens::run(Setup { from, filter, color, options, ignore, keep_index: !no_index && !are_rules_given })
}
