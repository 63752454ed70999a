//! Fields that tshark needs, from its arguments. `-T fields` gives plugins the whole tree and prints some fields of it;
//! if tshark only counts, nothing reads fields. The plugin adds no more than necessary.

use crate::facts;
use std::collections::HashSet;

/// Fields that are requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedFields {
    /// Our fields that the arguments name.
    pub(crate) fields: Vec<&'static str>,
    /// True if they name the protocol.
    pub(crate) protocol: bool,
    /// True if they name a field that Wireshark lacks where it leaves SMB Direct or SMB2 undecoded.
    pub(crate) others: bool,
    /// True if nothing reads fields.
    pub(crate) nothing: bool,
}

/// Fields of messages and of the protocol itself, which cannot be requested alone.
const NOT_FIELDS: [&str; 2] = ["rdmascope", "smb2"];

/// Protocols below SMB Direct: their fields are Wireshark's own in every frame.
const BELOW: [&str; 9] = ["frame", "eth", "vlan", "ip", "ipv6", "udp", "tcp", "infiniband", "rdmascope"];

/// Operators of filters; any other word may be a protocol.
const OPERATORS: [&str; 16] =
    ["and", "or", "not", "xor", "in", "contains", "matches", "eq", "ne", "gt", "lt", "ge", "le", "any", "all", "len"];

/// Options of tshark without a value, and options with one that show no fields.
const FLAGS: &str = "2lnpqQ";
const VALUES: &str = "rcCEtNd";

/// Statistics that read no fields.
fn counts(tap: &str) -> bool {
    let word = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    let interval = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    tap.strip_prefix("io,stat,").is_some_and(interval)
        || ["conv,", "endpoints,"].iter().any(|name| tap.strip_prefix(name).is_some_and(word))
}

/// The fields requested by these arguments, the first of which is the program's name. `None` if others may be needed
/// too: every argument must be a known one.
pub(crate) fn asked<'a>(arguments: impl Iterator<Item = &'a str>) -> Option<RequestedFields> {
    let mut arguments = arguments.skip(1);
    let (mut is_fields, mut is_quiet, mut is_counting) = (false, false, false);
    let mut named: Vec<&str> = Vec::new();
    while let Some(argument) = arguments.next() {
        if let Some(long) = argument.strip_prefix("--") {
            // --disable-protocol, --enable-heuristic and the like
            if !["enable-", "disable-"].iter().any(|word| long.starts_with(word)) || long.contains('=') {
                return None;
            }
            arguments.next();
            continue;
        }
        let mut letters = argument.strip_prefix('-').unwrap_or_default();
        while let Some(letter) = letters.chars().next() {
            let rest = &letters[letter.len_utf8()..];
            if FLAGS.contains(letter) {
                is_quiet |= letter.eq_ignore_ascii_case(&'q');
                letters = rest;
                continue;
            }
            let value = if rest.is_empty() { arguments.next().unwrap_or_default() } else { rest };
            match letter {
                // columns, colours and macros may contain any field
                'e' | 'Y' | 'R' if !value.contains("_ws") && !value.contains("color") && !value.contains('$') => {
                    named.push(value)
                }
                'T' if value == "fields" => is_fields = true,
                'z' if counts(value) => is_counting = true,
                'X' if value.starts_with("lua_script:") && value.ends_with("rdmascope.lua") => {}
                'o' if value.starts_with("rdmascope.") => {}
                _ if VALUES.contains(letter) => {}
                _ => return None,
            }
            letters = "";
        }
    }
    let nothing = is_quiet && is_counting && !is_fields && named.is_empty();
    if !is_fields && !nothing {
        return None;
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let words: HashSet<&str> = named.iter().flat_map(|text| text.split(|c| !is_of_name(c))).collect();
    let fields = facts::fields().iter().map(|def| def.name);
    let is_below = |word: &str| {
        let protocol = word.split('.').next().unwrap_or("");
        let is_whole = word != "frame.protocols" && !facts::is_of_others(word);
        let is_value = word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        is_value || OPERATORS.contains(&word) || (BELOW.contains(&protocol) && is_whole)
    };
    Some(RequestedFields {
        fields: fields.filter(|name| words.contains(name) && !NOT_FIELDS.contains(name)).collect(),
        protocol: words.contains("rdmascope"),
        others: !words.iter().all(|word| is_below(word)),
        nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<RequestedFields> {
        asked(std::iter::once("tshark").chain(line.split(' ')))
    }

    #[test]
    fn fields_that_are_printed_or_filtered_by_are_asked_for() {
        let none = of(
            "-r file -T fields -e frame.number -e rdmascope.exchange -Y rdmascope.stall>0.5&&not(ip.addr==10.0.0.1)",
        )
        .unwrap();
        assert!(!none.others && none.fields == ["rdmascope.exchange", "rdmascope.stall"]);
        for name in ["smb2.cmd", "frame.protocols", "rdmascope.smb2.rdma_transform.channel", "smb_direct", "rpc.xid"] {
            assert!(of(&format!("-r file -T fields -e rdmascope.stall -e {name}")).unwrap().others, "{name}");
        }
        let both =
            of("-nr file -2 -Y rdmascope.stall>0.5&&smb2.cmd==8 -Tfields -e rdmascope.exchange.time -E separator=,")
                .unwrap();
        assert_eq!(both.fields, ["rdmascope.exchange.time", "rdmascope.stall"]);
        assert!(!both.protocol && !both.nothing);
        let protocol = of("-r file -Y rdmascope -T fields -e smb2 --disable-protocol artemis").unwrap();
        assert_eq!(protocol, RequestedFields { fields: vec![], protocol: true, others: true, nothing: false });
    }

    #[test]
    fn where_tshark_only_counts_nobody_looks() {
        for line in [
            "-q -z io,stat,0 -r file",
            "-r file -qz conv,tcp",
            "-X lua_script:/tmp/rdmascope.lua -Q -z endpoints,ip -r file",
        ] {
            assert_eq!(of(line), Some(RequestedFields { nothing: true, ..RequestedFields::default() }), "{line}");
        }
        assert!(!of("-q -z io,stat,0 -T fields -e frame.number").unwrap().nothing);
    }

    #[test]
    fn what_may_show_more_is_not_known() {
        for line in [
            "-r file",
            "-r file -V",
            "-r file -T json",
            "-r file -T fields -e _ws.col.info",
            "-r file -T fields -Y ${mine}",
            "-r file -q -z io,stat,1,smb2.cmd==8",
            "-r file -q -z io,stat,0 -z rpc,programs",
            "-r file -T fields -e frame.number -X lua_script:other.lua",
            "-r file -T fields -e frame.number --color",
            "-r file -T fields -e frame.number --enable-protocol=x",
            "-r file -T fields -e frame.number -P",
            "-r file -q -z io,stat,0 -Y rdmascope",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
