//! `rdmascope fields [PREFIX]`: every field, in the format of `tshark -G fields`.
//!
//! ```text
//! P   SMB-Direct (SMB RDMA Transport)   smb_direct
//! F   CreditsGranted   smb_direct.credits.granted   FT_UINT16   smb_direct   BASE_DEC   0x0   [MS-SMBD] 2.2.2
//! ```

use crate::cli::{self, Color, Fields, Glossary};
use crate::stdout::Out;
use anyhow::{Result, bail};
use rdmascope_dissector::field::{Base, FieldDef, Kind};
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(args: &Fields, color: Color) -> Result<ExitCode> {
    let registry = cli::registry();
    let prefix = args.prefix.as_deref().unwrap_or("");
    if registry.starting_with(prefix).next().is_none() {
        bail!("no field's name begins with \"{prefix}\"");
    }
    let mut out = Out::new(color);
    for def in registry.starting_with(prefix) {
        line(&mut out.buffer, def);
        out.spill()?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the list of `dissect -G` in tshark's format.
pub(super) fn glossary(what: Glossary, color: Color) -> Result<ExitCode> {
    let registry = cli::registry();
    let mut out = Out::new(color);
    for def in registry.all() {
        // writing to a vector cannot fail
        let _ = match what {
            Glossary::Fields => {
                line(&mut out.buffer, def);
                Ok(())
            }
            Glossary::Protocols if def.kind == Kind::Protocol => {
                writeln!(out.buffer, "{0}\t{1}\t{1}", def.label, def.name)
            }
            Glossary::Protocols => Ok(()),
            Glossary::Values => {
                def.values.iter().try_for_each(|(v, name)| writeln!(out.buffer, "V\t{}\t{v}\t{name}", def.name))
            }
        };
        out.spill()?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn line(out: &mut Vec<u8>, def: &FieldDef) {
    let FieldDef { name, label, kind, mask, spec, .. } = def;
    // writing to a vector cannot fail
    let _ = match kind {
        Kind::Protocol => writeln!(out, "P\t{label}\t{name}"),
        _ => writeln!(
            out,
            "F\t{label}\t{name}\t{}\t{}\t{}\t{mask:#x}\t{spec}",
            kind.wireshark(),
            def.protocol(),
            base(def)
        ),
    };
}

/// Base of a field as Wireshark prints it: for a boolean, the width of the integer that holds it.
fn base(def: &FieldDef) -> String {
    match def.kind {
        Kind::Bool if def.mask == 0 => "0".into(),
        Kind::Bool => def.width.to_string(),
        _ if def.base == Base::None => String::new(),
        _ => def.base.wireshark().into(),
    }
}
