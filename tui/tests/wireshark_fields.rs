//! Every field with a name of Wireshark's, against `tshark -G fields` and `tshark -G values`: type, base, mask and the
//! numbers of named values agree, or the difference is listed in `samples/wireshark-differences.txt` with its reason.

mod common;

use rdmascope_dissector::field::{Base, FieldDef, Kind};
use rdmascope_dissector::registry::Registry;
use std::collections::HashMap;

/// A declaration of Wireshark's. A name may have several.
struct WiresharkField {
    kind: String,
    base: String,
    mask: u64,
}

fn theirs(text: &str) -> HashMap<&str, Vec<WiresharkField>> {
    let mut fields: HashMap<&str, Vec<WiresharkField>> = HashMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[..] {
            ["P", _, name, ..] => fields.entry(name).or_default().push(WiresharkField {
                kind: "FT_PROTOCOL".into(),
                base: String::new(),
                mask: 0,
            }),
            ["F", _, name, kind, _, base, mask, ..] => {
                let mask = u64::from_str_radix(mask.trim_start_matches("0x"), 16).unwrap_or(0);
                fields.entry(name).or_default().push(WiresharkField { kind: kind.into(), base: base.into(), mask });
            }
            _ => {}
        }
    }
    fields
}

/// True if the types mean the same. Wireshark's string types differ only in how the length is determined, which does
/// not affect the value.
fn same_kind(ours: &FieldDef, theirs: &WiresharkField) -> bool {
    let kind = ours.kind.wireshark();
    match theirs.kind.as_str() {
        "FT_STRINGZ" | "FT_UINT_STRING" | "FT_STRINGZPAD" | "FT_STRINGZTRUNC" => kind == "FT_STRING",
        "FT_UINT_BYTES" => kind == "FT_BYTES",
        other => kind == other,
    }
}

fn same_base(ours: &FieldDef, theirs: &WiresharkField) -> bool {
    match ours.kind {
        Kind::Bool => {
            // the width of a boolean without a mask is not used
            ours.mask == 0 || theirs.base == ours.width.to_string()
        }
        _ if ours.base == Base::None => true,
        // a port is a decimal number whose service is looked up
        _ => theirs.base == ours.base.wireshark() || (ours.base == Base::Dec && theirs.base.starts_with("BASE_PT_")),
    }
}

/// True if the masks mean the same. A mask over all bits of a field equals no mask.
fn same_mask(ours: &FieldDef, theirs: &WiresharkField) -> bool {
    let all = match ours.kind.bits() {
        0 => 0,
        64 => u64::MAX,
        bits => (1 << bits) - 1,
    };
    let meaning = |mask: u64| if mask == all { 0 } else { mask };
    meaning(ours.mask) == meaning(theirs.mask)
}

#[test]
fn types_bases_and_masks_are_wiresharks() {
    let Some(output) = common::tshark(&common::samples(), &["-G", "fields"]) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let theirs = theirs(&text);
    assert!(theirs.len() > 100_000, "tshark lists {} fields only", theirs.len());
    let known = common::differences();
    let registry = Registry::new();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for def in registry.all() {
        let Some(theirs) = theirs.get(def.name) else { continue };
        compared += 1;
        let mut check = |what: &str,
                         same: &dyn Fn(&WiresharkField) -> bool,
                         ours: String,
                         theirs_text: &dyn Fn(&WiresharkField) -> String| {
            if theirs.iter().any(same) || known.contains_key(&(def.name.to_owned(), what.to_owned())) {
                return;
            }
            let all: Vec<String> = theirs.iter().map(theirs_text).collect();
            wrong.push(format!("{}\t{what}\tours is {ours}, Wireshark's {}", def.name, all.join(" or ")));
        };
        check("kind", &|t| same_kind(def, t), def.kind.wireshark().into(), &|t| t.kind.clone());
        let base = if def.kind == Kind::Bool { def.width.to_string() } else { def.base.wireshark().into() };
        check("base", &|t| same_base(def, t) || !same_kind(def, t), base, &|t| t.base.clone());
        check("mask", &|t| same_mask(def, t) || !same_kind(def, t), format!("{:#x}", def.mask), &|t| {
            format!("{:#x}", t.mask)
        });
    }
    eprintln!("{compared} of {} fields have a name of Wireshark's", registry.all().len());
    assert!(compared > 50, "only {compared} fields were compared");
    assert!(wrong.is_empty(), "{} differences that no one gave a reason for:\n{}", wrong.len(), wrong.join("\n"));
}

/// The letters and digits of a value's name, in which both programs mostly agree.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// A value that both programs name has the same number in both. Names that only one of them has are not compared.
#[test]
fn named_values_have_wiresharks_numbers() {
    let Some(output) = common::tshark(&common::samples(), &["-G", "values"]) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let known = common::differences();
    let registry = Registry::new();
    let ours: HashMap<&str, &FieldDef> =
        registry.all().iter().filter(|d| !d.values.is_empty()).map(|d| (d.name, *d)).collect();
    let mut theirs: HashMap<(&str, String), Vec<u64>> = HashMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let ["V" | "V64", name, number, meaning, ..] = columns[..] else { continue };
        if !ours.contains_key(name) {
            continue;
        }
        let number = match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => number.parse(),
        };
        theirs.entry((name, letters(meaning))).or_default().extend(number);
    }
    assert!(theirs.len() > 1000, "tshark lists {} values of our fields only", theirs.len());
    let mut wrong = Vec::new();
    for (name, def) in ours {
        if known.contains_key(&(name.to_owned(), "meaning".to_owned())) {
            continue;
        }
        // a name without letters is a sign
        for (number, meaning) in def.values.iter().filter(|(_, meaning)| !letters(meaning).is_empty()) {
            if let Some(numbers) = theirs.get(&(name, letters(meaning)))
                && !numbers.contains(number)
            {
                wrong.push(format!("{name}\tours: {meaning} is {number:#x}, Wireshark's {numbers:#x?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} numbers that no one gave a reason for:\n{}", wrong.len(), wrong.join("\n"));
}

/// Names under the prefix of a Wireshark protocol belong to Wireshark: names that it does not have begin with
/// `rdmascope.`, so that filters and scripts mean the same in both programs.
#[test]
fn names_that_wireshark_has_not_are_ours() {
    let newest = common::root().join("interop/newest-tshark");
    if !std::process::Command::new(&newest).arg("--ready").status().is_ok_and(|s| s.success()) {
        return;
    }
    let output = std::process::Command::new(newest).args(["-G", "fields"]).output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let theirs = theirs(&text);
    let first = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let protocols: std::collections::HashSet<String> = theirs.keys().map(|name| first(name)).collect();
    let registry = rdmascope_report::fields::registry();
    let wrong: Vec<&str> = registry
        .all()
        .iter()
        .map(|d| d.name)
        .filter(|n| protocols.contains(&first(n)) && !theirs.contains_key(n))
        .collect();
    assert!(wrong.is_empty(), "{} names: {wrong:?}", wrong.len());
}
