//! Command lines that users of tshark are used to: each gives tshark's output, works, is accepted without effect, or is
//! refused by one line that names the alternative.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

enum Expected {
    /// The same text as the newest tshark, if that is available.
    Same,
    /// As many lines.
    Lines,
    /// The text has this.
    Says(&'static str),
    /// Status 2, and one line that has this.
    Refused(&'static str),
}
use Expected::{Lines, Refused, Same, Says};

const ROCE: &str = "roce.pcap";

/// Words that contain spaces are in single quotes.
const CASES: &[(&str, Expected)] = &[
    ("-r roce.pcap -T fields -e frame.number", Same),
    ("-n -r roce.pcap -T fields -e frame.number -e frame.len -e ip.src -e ip.dst", Same),
    ("-r roce.pcap -Y smb2.cmd==5 -T fields -e frame.number -e smb2.cmd -e smb2.msg_id", Lines),
    ("-r roce.pcap -c 40 -T fields -e frame.number", Same),
    ("-r roce.pcap -c 40 -Y 'frame.number > 30' -T fields -e frame.number", Same),
    ("-r roce.pcap -c 30 -T fields -e frame.time_relative", Same),
    ("-r roce.pcap -c 30 -T fields -e frame.time_epoch", Lines),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -e udp.port", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -e udp.port -E separator=,", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -e udp.port -E separator=;", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -e udp.port -E separator=, -E quote=d", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -E occurrence=f", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -E occurrence=l", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -e ip.addr -E aggregator=/s", Same),
    ("-r roce.pcap -c 60 -Y ip -T fields -E header=y -e ip.ttl -e ip.proto", Same),
    (
        "-r roce.pcap -c 60 -Y udp -T fields -e _ws.col.number -e _ws.col.def_src -e _ws.col.def_dst -e \
            _ws.col.packet_length",
        Lines,
    ),
    ("-r roce.pcap -Y smb2 -T fields -e _ws.col.protocol", Same),
    ("-r roce.pcap -c 60 -Y smb2 -T fields -e _ws.col.Info", Says("Negotiate")),
    ("-r roce.pcap -c 2 -T fields -e http.host -e frame.number", Same),
    ("-r roce.pcap -Y !http -c 5 -T fields -e frame.number", Same),
    ("-r roce.pcap -Y smb2.pid==0xfeff -T fields -e frame.number", Lines),
    ("-r roce.pcap", Lines),
    ("-r roce.pcap -c 10", Lines),
    ("-r roce.pcap -Y 'smb2.cmd == \"Read\"'", Lines),
    ("-r roce.pcap -t ad -c 3", Says("2026-11-21 08:55:57.")),
    ("-r roce.pcap -t a -c 3", Says("08:55:57.")),
    ("-r roce.pcap -t u -c 3", Says("07:55:57.")),
    ("-r roce.pcap -t ud -c 3", Says("2026-11-21 07:55:57.478303Z")),
    ("-r roce.pcap -t udoy -c 3", Says("2026/325 07:55:57.")),
    ("-r roce.pcap -t adoy -c 3", Says("2026/325 08:55:57.")),
    ("-r roce.pcap -t e -c 3", Says("1795247757.")),
    ("-r roce.pcap -t r -c 3", Says("0.683533")),
    ("-r roce.pcap -t d -c 3", Says("0.683533")),
    ("-r roce.pcap -t dd -c 3", Says("0.683533")),
    ("-r roce.pcap -t x", Refused("there are r, d")),
    ("-r roce.pcap -n -N mn -2 -l -c 5", Lines),
    ("-r roce.pcap -q", Says("")),
    ("-r roce.pcap -V -c 2", Says("Ethernet")),
    ("-r roce.pcap -O smb2 -Y smb2 -c 60", Says("SMB2 Header")),
    ("-r roce.pcap -x -c 2", Says("0010")),
    ("-r roce.pcap -S ---- -c 4", Says("----")),
    ("-r roce.pcap -T tabs -c 5", Lines),
    ("-r roce.pcap -T psml -c 5", Lines),
    ("-r roce.pcap -T pdml -c 2", Says("<pdml")),
    ("-r roce.pcap -T json -c 2", Says("_source")),
    ("-r roce.pcap -T json -j smb2 -Y smb2 -c 60", Says("\"smb2\"")),
    ("-r roce.pcap -T ek -J smb2 -Y smb2 -c 60", Says("smb2_")),
    ("-r roce.pcap -T ek -c 2", Lines),
    ("-r roce.pcap -T jsonraw -c 2", Says("\"frame_raw\": [\"")),
    ("-r roce.pcap -T json -x -Y smb2 -c 60", Says("\"smb2.cmd_raw\": [\"0000\", 90, 2, 0, 5, 0]")),
    ("-r iwarp.pcap -q -z follow,tcp,ascii,0", Lines),
    ("-r iwarp.pcap -q -z follow,tcp,hex,0,1-20", Same),
    ("-r iwarp.pcap -q -z follow,tcp,raw,0", Same),
    ("-r roce.pcap -q -z follow,smb_direct,raw,1", Says("Node 0: 192.0.2.2")),
    ("-r iwarp.pcap -T fields -e tcp.stream -e tcp.analysis.acks_frame -e tcp.analysis.initial_rtt", Same),
    ("-r iwarp.pcap -Y tcp.analysis.flags -T fields -e frame.number", Same),
    ("-r iwarp.pcap -T fields -e frame.number -e tcp.analysis.bytes_in_flight", Same),
    ("-r sacks.pcap -T fields -e frame.number -e tcp.analysis.bytes_in_flight -e tcp.analysis.push_bytes_sent", Same),
    (
        "-r roce.pcap -Y smb2 -c 60 -T json -e frame.number -e ip.addr -e smb2.cmd -e smb2.sesid -e frame.time_epoch",
        Same,
    ),
    ("-r roce.pcap -Y smb2 -c 60 -T ek -e frame.number -e ip.addr -e smb2.cmd -e _ws.col.Protocol", Same),
    ("-r roce.pcap -c 40 -T json -e smb2.cmd", Same),
    ("-r roce.pcap -c 40 -T json -e ip.addr -E occurrence=l", Same),
    ("-r roce.pcap -Y http -T json -e smb2.cmd", Same),
    ("-r roce.pcap -T pdml -e frame.number", Refused("-T fields, csv, json or ek")),
    ("-r roce.pcap -T fields -e frame.number smb2", Same),
    ("-r roce.pcap -T fields -e frame.number smb2.cmd == 5 or smb2.cmd == 6", Lines),
    ("-r roce.pcap -T fields -e frame.number none.pcap", Refused("no such file")),
    ("-r roce.pcap -Y smb2 --color -c 60", Lines),
    ("-r roce.pcap -a packets:5", Refused("-c N")),
    ("-r roce.pcap -w out.pcapng -b filesize:100", Refused("rdmascope capture has -b")),
    ("-r roce.pcap -f tcp", Refused("-Y")),
    ("-D", Refused("rdmascope capture -D")),
    ("-r roce.pcap -p -c 5", Lines),
    ("-nr roce.pcap -Tfields -eframe.number -c5", Same),
    ("-r roce.pcap -Y 'frame.number in {10..20,30}' -T fields -e frame.number", Same),
    ("-r roce.pcap -Y 'smb2.nt_status != 0' -T fields -e frame.number -e smb2.nt_status", Same),
    (
        "-r roce.pcap -T fields -e frame.time_delta -e infiniband.bth.opcode -e infiniband.bth.psn -E header=y -E \
            separator=,",
        Same,
    ),
    (
        "-r roce.pcap -Y 'smb2.cmd==8 && smb2.flags.response==0' -T fields -e frame.time_relative -e smb2.read_length \
            -e smb2.file_offset",
        Same,
    ),
    (
        "-r iwarp.pcap -Y tcp.flags.syn==1 -T fields -e frame.number -e tcp.options.mss_val -e tcp.window_size_value",
        Same,
    ),
    ("-r roce.pcap -Y 'ip.addr == 192.0.2.0/24' -T fields -e frame.number", Same),
    ("-r roce.pcap -T ps", Refused("-T text")),
    ("-r roce.pcap -q -z io,stat,5,smb2", Says("IO Statistics")),
    ("-r roce.pcap -q -z io,stat,0", Says("1079")),
    ("-r roce.pcap -q -z io,phs", Says("smb_direct")),
    ("-r roce.pcap -q -z conv,ip", Says("192.0.2.1 <-> 192.0.2.2")),
    ("-r roce.pcap -q -z conv,udp,smb2", Says("4791")),
    ("-r roce.pcap -q -z endpoints,ip", Says("192.0.2.1")),
    ("-r roce.pcap -q -z smb2,srt", Says("Create                     7")),
    ("-r roce.pcap -q -z rpc,srt,100003,3", Says("RPC SRT Statistics")),
    ("-r roce.pcap -q -z expert", Says("")),
    ("-r roce.pcap -q -z follow,udp,ascii,0", Refused("tcp and smb_direct")),
    ("-r roce.pcap -q -z conv,bluetooth", Refused("supports eth, ip")),
    ("-r roce.pcap -q -z sip,stat", Refused("-z knows")),
    ("-r roce.pcap -d udp.port==5000,infiniband -c 5", Lines),
    ("-r roce.pcap -d tcp.port==5000,iwarp_mpa -c 5", Says("ICMPv6")),
    ("-r roce.pcap -d tcp.port==80,http", Refused("udp.port==N,infiniband")),
    ("-r roce.pcap -o tcp.relative_sequence_numbers:FALSE", Refused("no preferences")),
    ("-r roce.pcap -C profile", Refused("no profiles")),
    ("-r roce.pcap -X lua_script:x.lua", Refused("rdmascope export wireshark")),
    ("-i eth0", Refused("rdmascope capture")),
    ("-r roce.pcap -R smb2", Refused("-Y")),
    ("-r roce.pcap --export-objects smb,out", Says("w1.bin")),
    ("-r roce.pcap --export-objects smb,out", Refused("--force")),
    ("-r roce.pcap --export-objects smb,out --force", Says("w1.bin")),
    ("-r roce.pcap --export-objects nfs,none", Says("no READ or WRITE")),
    ("-r roce.pcap --export-objects http,out", Refused("smb or nfs")),
    ("-G fields", Says("smb2.cmd")),
    ("-G protocols", Says("smb_direct")),
    ("-G values", Says("STATUS_ACCESS_DENIED")),
    ("-r roce.pcap -Y smb2 -c 60 -T fields -e frame.number -e ip.src_host -e ip.dst_host -e ip.host", Same),
    ("-r roce.pcap -c 20 -T fields -e ipv6.src_host -e ipv6.host", Same),
    ("-n -r roce.pcap -c 20 -T fields -e eth.src_resolved -e eth.addr_resolved -e eth.lg -e eth.ig", Same),
    ("-r roce.pcap -T fields -e frame.time -e frame.time_utc -c 3", Same),
    ("-r roce.pcap -Y smb2.cmd==0 -T fields -e smb2.current_time -e smb2.boot_time", Same),
    ("-r nfs3.pcap -Y nfs.mtime -T fields -e nfs.mtime -e nfs.atime", Lines),
    ("-r roce.pcap -Y 'frame.time >= \"2026-11-21 08:56:10\"' -T fields -e frame.number", Same),
    ("-r roce.pcap -Y 'frame.time < \"2026-11-21T07:56:10Z\"' -T fields -e frame.number", Same),
    ("-r roce.pcap -T fields -e frame.time_delta_displayed -Y smb2.cmd==8", Same),
    ("-r roce.pcap -T json -e frame.time_delta_displayed -Y smb2.cmd==8", Same),
    ("-r roce.pcap -Y 'smb2.time && !(smb2.nt_status == 0xc0000052)' -T fields -e frame.number -e smb2.time", Same),
    ("-r roce.pcap -T fields -e eth.src -e eth.dst -e eth.type -c 30", Same),
    (
        "-r roce.pcap -T fields -e infiniband.bth.opcode -e infiniband.bth.destqp -e infiniband.aeth.syndrome -e \
            infiniband.aeth.msn",
        Same,
    ),
    (
        "-r roce.pcap -T fields -e infiniband.reth.va -e infiniband.reth.r_key -e infiniband.reth.dmalen -Y \
            infiniband.reth",
        Same,
    ),
    (
        "-r roce.pcap -T fields -e smb_direct.credits.requested -e smb_direct.credits.granted -e \
            smb_direct.data_length -Y smb_direct",
        Same,
    ),
    ("-r roce.pcap -Y smb2.cmd==3 -T fields -e smb2.tree -e smb2.share_type -e smb2.tid", Same),
    (
        "-r roce.pcap -Y smb2.cmd==0 -T fields -e smb2.dialect -e smb2.capabilities -e smb2.sec_mode -e \
            smb2.max_read_size",
        Same,
    ),
    ("-r roce.pcap -T fields -E header=y -E separator=/t -E quote=n -e frame.number -e smb2.cmd -c 40", Same),
    ("-r roce.pcap -T fields -E header=y -E separator=| -E quote=s -e frame.number -e ip.src -c 40", Same),
    ("-r roce.pcap -T fields -E bom=y -e frame.number -c 2", Same),
    ("-r iwarp.pcap -T fields -e tcp.srcport -e tcp.dstport -e tcp.seq -e tcp.ack -e tcp.len -e tcp.window_size", Same),
    ("-r iwarp.pcap -T fields -e tcp.flags -e tcp.flags.str -e tcp.options -e tcp.options.timestamp.tsval -c 40", Same),
    ("-r iwarp.pcap -T fields -e tcp.time_delta -e tcp.time_relative -c 40", Same),
    (
        "-r iwarp.pcap -Y 'tcp.connection.syn || tcp.connection.synack || tcp.connection.fin' -T fields -e frame.number",
        Same,
    ),
    ("-r sacks.pcap -Y tcp.options.sack.dsack -T fields -e frame.number", Same),
    (
        "--disable-protocol artemis -r iwarp.pcap -Y iwarp_ddp -T fields -e frame.number",
        Refused("protocols cannot be switched off"),
    ),
    ("-r nfs3.pcap -Y 'nfs.procedure_v3==6 && rpc.msgtyp==0' -T fields -e nfs.offset3 -e nfs.count3", Same),
    ("-r nfs42.pcap -Y rpc.msgtyp==0 -T fields -e nfs.main_opcode -e rpc.auth.machinename", Lines),
    ("-r nfs42.pcap -Y rpcordma -T fields -e rpcordma.xid -e rpcordma.flow_control -e rpcordma.msg_type", Same),
    ("-r roce.pcap -t ad -T fields -e _ws.col.Time -c 3", Same),
    ("-r roce.pcap -u s -t r -T fields -e _ws.col.Time -c 3", Same),
    ("-r roce.pcap -u hms -c 3", Refused("in seconds")),
    ("-r roce.pcap -d udp.port==4791,infiniband -T fields -e frame.number -c 3", Same),
    ("-r roce.pcap -M 100 -T fields -e frame.number -c 4", Same),
    (
        "-r roce.pcap --enable-protocol smb2 -g -W n -H /etc/hosts --log-level warning -T fields -e frame.number -c 4",
        Lines,
    ),
    ("-r roce.pcap --only-protocols smb2", Refused("protocols cannot be switched off")),
    ("-r roce.pcap --hexdump frames -c 1", Refused("-x shows")),
    ("-r roce.pcap -T fields", Refused("-e FIELD")),
    ("-r roce.pcap -e frame.number", Refused("-T fields")),
    ("-r roce.pcap -T xml", Refused("possible values")),
    ("-r roce.pcap -q -z io,stat,1,SUM(frame.len)frame.len", Refused("-T fields -e FIELD")),
    ("-r nfs3.pcap -q -z rpc,programs", Refused("rpc,srt")),
    ("-r iwarp.pcap -q -z flow,tcp,network", Refused("rdmascope tui FILE")),
    ("-r roce.pcap -q -z http,tree", Refused("-z knows")),
    ("-r roce.pcap -q -z conv,eth", Says("<->")),
    ("-r nfs3.pcap -q -z rpc,srt,100003,3", Says("READ")),
    ("-r iwarp.pcap -q -z expert,note,tcp", Says("Notes")),
    ("-G column-formats", Refused("fields, protocols, values")),
    ("-r roce.pcap -T fields -e frame.time_epoch -e ip.src -e udp.srcport -e udp.dstport -E separator=, -c 50", Same),
    ("-r roce.pcap -T fields -e frame.len -e frame.cap_len -e frame.time_relative -Y 'frame.len > 500'", Same),
    ("-r roce.pcap -Y 'infiniband.bth.opcode == 10' -T fields -e infiniband.bth.destqp -e infiniband.reth.r_key", Same),
    ("-r roce.pcap -T fields -e eth.src -e ip.src -e ip.ttl -e ip.dsfield.dscp -e ip.dsfield.ecn -c 60", Same),
    ("-r roce.pcap -T fields -e ip.id -e ip.len -e ip.flags.df -c 60", Same),
    ("-r roce.pcap -T ek -e frame.number -e ip.src -c 5", Same),
    (
        "-r iwarp.pcap -T fields -e tcp.stream -e tcp.flags.syn -e tcp.flags.fin -Y 'tcp.flags.syn==1 || \
            tcp.flags.fin==1'",
        Same,
    ),
    ("-r iwarp.pcap -Y 'tcp.len > 0' -T fields -e tcp.seq -e tcp.nxtseq -e tcp.ack", Same),
    ("-r iwarp.pcap -T fields -e tcp.analysis.ack_rtt -Y tcp.analysis.ack_rtt", Same),
    // tshark leaves out the last request of some compounds
    ("-r roce.pcap -Y smb2 -T fields -e ip.src -e ip.dst -e smb2.cmd -E separator=; -E aggregator=|", Lines),
    ("-r roce.pcap -Y smb2.flags.response==1 -T fields -e smb2.nt_status -E header=y", Lines),
    // tshark has the pseudo-protocol ethertype, and names of manufacturers
    ("-r roce.pcap -T fields -e frame.protocols -c 10", Lines),
    ("-r roce.pcap -T fields -e _ws.col.Source -e _ws.col.Destination -c 20", Lines),
    // tshark shows replies in Reply chunks twice
    ("-r nfs3.pcap -Y rpc.msgtyp==1 -T fields -e rpc.xid -e rpc.replystat -e rpc.state_accept", Lines),
    ("-r nfs42.pcap -Y nfs.nfsstat4 -T fields -e frame.number -e nfs.nfsstat4", Lines),
    ("-r iwarp.pcap -q -z conv,tcp", Says("192.0.2.2")),
    ("-r iwarp.pcap -q -z endpoints,tcp", Says("Packets")),
    ("-r none.pcap", Refused("no such file")),
    ("-r roce.pcap --limit 3", Says("  3 ")),
    ("-r roce.pcap -Y smb2 -w out.pcap", Says("")),
];

fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is always one").push(c),
        }
    }
    words
}

fn rdmascope(folder: &Path, arguments: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmascope"));
    command
        .arg("dissect")
        .args(arguments)
        .current_dir(folder)
        .env("TZ", "Europe/Berlin")
        .output()
        .expect("the binary runs")
}

fn newest() -> Option<PathBuf> {
    let newest = common::root().join("interop/newest-tshark");
    let ready = Command::new(&newest).arg("--ready").status().is_ok_and(|s| s.success());
    if !ready {
        let message = "NOT TESTED: the newest tshark is not there: interop/newest-tshark --get";
        assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "{message}");
        eprintln!("{message}");
    }
    ready.then_some(newest)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    common::open_to_all(folder.path());
    for (sample, name) in [
        ("smb-roce", ROCE),
        ("smb-iwarp", "iwarp.pcap"),
        ("smb-iwarp-credits8", "sacks.pcap"),
        ("nfs-roce-v3", "nfs3.pcap"),
        ("nfs-roce-v42", "nfs42.pcap"),
    ] {
        let to = folder.path().join(name);
        std::fs::copy(common::samples().join(sample).join(format!("{sample}.pcap")), &to).expect("a sample");
        common::open_to_all(&to);
    }
    folder
}

#[test]
fn tshark_options_work_or_name_their_replacement() {
    let (newest, folder) = (newest(), folder());
    let mut wrong = Vec::new();
    for (line, expected) in CASES {
        let arguments = words(line);
        let ours = rdmascope(folder.path(), &arguments);
        let (out, err) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
        let mut note = |what: String| wrong.push(format!("{line}: {what}"));
        if let Refused(text) = expected {
            if ours.status.code() != Some(2) || err.trim_end().lines().count() != 1 || !err.contains(text) {
                note(format!("status {:?}, {err}", ours.status.code()));
            }
            continue;
        }
        if !ours.status.success() {
            note(format!("fails: {err}"));
            continue;
        }
        if let Says(text) = expected {
            if !out.contains(text) {
                note(format!("says {}", out.chars().take(200).collect::<String>()));
            }
            continue;
        }
        let Some(newest) = &newest else { continue };
        let theirs = Command::new(newest)
            .args(&arguments)
            .current_dir(folder.path())
            .env("TZ", "Europe/Berlin")
            .output()
            .expect("tshark runs");
        let theirs = String::from_utf8_lossy(&theirs.stdout);
        let same = match expected {
            Same => out == theirs,
            _ => out.lines().count() == theirs.lines().count(),
        };
        if !same {
            let at = out.lines().zip(theirs.lines()).find(|(a, b)| a != b);
            note(format!("{} lines, tshark {}; {at:?}", out.lines().count(), theirs.lines().count()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// If both name a frame, it is the same one; tshark stops earlier in some compounds.
#[test]
fn a_second_pass_names_the_frames_that_tshark_names() {
    let Some(newest) = newest() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    common::open_to_all(folder.path());
    let fields = [
        "smb2.response_in",
        "smb2.response_to",
        "rpc.reqframe",
        "rpc.repframe",
        "smb_direct.fragment",
        "smb_direct.reassembled_in",
        "tcp.segment",
        "tcp.reassembled_in",
    ];
    // of each sample, the fields that both give, and in how many frames at least
    let wanted: [(&str, &[(&str, usize)]); 2] = [
        (
            "smb-roce",
            &[
                ("smb2.response_in", 51),
                ("smb2.response_to", 51),
                ("smb_direct.fragment", 51),
                ("smb_direct.reassembled_in", 51),
            ],
        ),
        (
            "nfs-iwarp-v42",
            &[("rpc.reqframe", 51), ("rpc.repframe", 51), ("tcp.segment", 10), ("tcp.reassembled_in", 15)],
        ),
    ];
    for (sample, wanted) in wanted {
        let file = format!("{sample}.pcap");
        std::fs::copy(common::samples().join(sample).join(&file), folder.path().join(&file)).expect("a sample");
        common::open_to_all(&folder.path().join(&file));
        let line = format!("-2 -r {file} -T fields -e {}", fields.join(" -e "));
        let theirs = Command::new(&newest).args(words(&line)).current_dir(folder.path()).output().expect("tshark runs");
        let theirs = String::from_utf8(theirs.stdout).expect("text");
        let ours = String::from_utf8(rdmascope(folder.path(), &words(&line)).stdout).expect("text");
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{sample}");
        let has = |frame: &str| {
            frame.parse().ok().and_then(|n: usize| ours.lines().nth(n - 1)).is_some_and(|line| !line.trim().is_empty())
        };
        let mut same = std::collections::BTreeMap::new();
        for (n, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
            let each = fields.iter().zip(ours.split('\t')).zip(theirs.split('\t'));
            // tshark lists a call with read chunks at another frame
            for ((field, ours), theirs) in each.filter(|((_, ours), theirs)| !ours.is_empty() && !theirs.is_empty()) {
                let (more, less): (Vec<_>, Vec<_>) = (ours.split(',').collect(), theirs.split(',').collect());
                if !less.iter().all(|frame| has(frame)) {
                    continue;
                }
                assert!(more.starts_with(&less), "{sample}, frame {}, {field}: {ours}, tshark {theirs}", n + 1);
                *same.entry(*field).or_insert(0) += 1;
            }
        }
        for (field, least) in wanted {
            assert!(
                same.get(field).is_some_and(|n| n >= least),
                "{sample}: {field} is the same {:?} times",
                same.get(field)
            );
        }
    }
}

#[test]
fn w_keeps_what_the_filter_passes_in_the_format_of_the_input() {
    let folder = folder();
    let run = |line: &str| {
        let output = rdmascope(folder.path(), &words(line));
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (status, _, out) = run("-r roce.pcap -Y smb2 -w some.pcap");
    assert_eq!((status, &*out), (Some(0), ""));
    let magic = |name: &str| std::fs::read(folder.path().join(name)).expect("it was written")[..4].to_vec();
    assert_eq!(magic("some.pcap"), magic(ROCE));
    let kept = run("-r some.pcap -T fields -e frame.len").2;
    assert_eq!(kept, run("-r roce.pcap -Y smb2 -T fields -e frame.len").2);
    assert!(kept.lines().count() > 300);
    assert_eq!(run("-r roce.pcap -c 5 -F pcapng -w five.pcapng -P").2.lines().count(), 5);
    assert_eq!(magic("five.pcapng"), [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(run("-r roce.pcap -Y http -w none.pcap").0, Some(0));
    assert_eq!(run("-r none.pcap").2, "");
    let before = std::fs::read(folder.path().join(ROCE)).expect("the sample");
    assert_eq!(run("-r roce.pcap -w roce.pcap --force").0, Some(2), "never onto the input");
    assert_eq!(before, std::fs::read(folder.path().join(ROCE)).expect("the sample"));
    assert_eq!(run("-r roce.pcap -w some.pcap").0, Some(2), "nor onto another file unasked");
    assert_eq!(run("-r roce.pcap -w some.pcap --force").0, Some(0));
}

#[test]
fn a_file_alone_is_analyzed_and_flags_alone_dissect() {
    let folder = folder();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rdmascope"))
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&[ROCE]), run(&["analyze", ROCE]));
    assert_eq!(run(&["-r", ROCE, "-c", "3"]), run(&["dissect", ROCE, "-c", "3"]));
}
