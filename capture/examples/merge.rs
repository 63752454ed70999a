//! Merges captures by time into one pcapng file: `merge OUT IN…`. Compressed files are read too; `-` is standard input
//! or output.

use rdmascope_capture::{Interface, MergedSource, OpenOptions, PcapngWriter, Result, Section, Source, open};

fn main() {
    if let Err(e) = merge() {
        eprintln!("{e}");
        std::process::exit(2);
    }
}

fn merge() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let output = arguments.next().unwrap_or_else(|| "-".into());
    let inputs: Vec<_> = arguments.map(|path| open(path, OpenOptions::new())).collect::<Result<_>>()?;
    let mut merged = MergedSource::new(inputs);

    let section = Section { application: Some("merge, an example".to_owned()), ..Section::default() };
    let mut writer = PcapngWriter::create(output, &section)?;
    let damage = loop {
        match merged.advance() {
            Ok(true) => {
                writer.catch_up(merged.metadata())?;
                writer.write(&merged.record())?;
            }
            Ok(false) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    for (number, Interface { statistics, .. }) in merged.interfaces().iter().enumerate() {
        if let Some(statistics) = statistics {
            writer.write_statistics(number as u32, statistics)?;
        }
    }
    writer.finish()?;
    damage
}
