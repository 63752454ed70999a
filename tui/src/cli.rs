//! The command line: verbs, flags, and their help. A flag that tshark also has means the same here.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use rdmascope_analyzer::exchange::Family;
use rdmascope_capture::{Access, Existing, WholeFile};
pub(crate) use rdmascope_report::fields::{FilterError, filter, registry};
use rdmascope_report::output::times::{self, Times};
use rdmascope_report::report::words::Clock;
use rdmascope_report::report::{Ignore, Manual};
pub(crate) use rdmascope_report::stdout::Color;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  rdmascope analyze trace.pcapng               what went wrong, and whose fault
  rdmascope dissect trace.pcapng               one line per frame
  rdmascope dissect trace.pcapng -Y smb2 -V    every field of SMB2 frames
  rdmascope dissect trace.pcapng -T json | jq .
  rdmascope tui trace.pcapng                   explore it in the terminal
  rdmascope fields smb_direct                  fields for filters

Exit status: 0 done; 1 done, and analyze --fail-on found something; 2 wrong use, or input that cannot be read.";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  rdmascope analyze trace.pcapng            the report
  rdmascope analyze client.pcap server.pcap.zst    merged by time
  rdmascope analyze trace.pcapng -Y 'ip.addr == 192.0.2.7'
  rdmascope analyze trace.pcapng --format json --exchanges
  rdmascope analyze trace.pcapng --format html -o report.html
  rdmascope analyze trace.pcapng --fail-on error   status 1 for an error
  rdmascope analyze trace.pcapng --fail-on warn --ignore RC-CNP,SMB2-ERROR
  rdmascope analyze good.pcapng --write-expect expect.toml
  rdmascope analyze trace.pcapng --expect expect.toml --verdicts junit
  rdmascope analyze -i eth0 --every 10s     live traffic, until Ctrl-C

--expect names requests (READ, \"READ >= 64K\", \"*\") with count, errors, unanswered, bytes, by_rdma, min, median, \
p90, p99, p999, max; \
findings with a severity or an id; agreed with signing, encryption, dialect; transport, credits, messages and rdma \
with their counters. Tables \
[[allow]] with rule and by leave findings out.

Exit status: 0 done; 1 done, and --fail-on found something or an expectation does not hold; 2 wrong use, or input that \
cannot be read (if \
only its end cannot, the part before is reported).";

const DISSECT_EXAMPLES: &str = "\
Examples:
  rdmascope dissect trace.pcapng --limit 20
  rdmascope dissect trace.pcapng -Y 'ip.src == 192.0.2.1 && smb2.cmd in {8, 9}'
  rdmascope dissect trace.pcapng -Y 'smb_direct.credits.granted == 0' -V
  rdmascope dissect trace.pcapng -T fields -e smb2.cmd -e smb2.msg_id
  rdmascope dissect a.pcap b.pcap.zst -T json > both.json
  tcpdump -w - | rdmascope dissect -

Filters are Wireshark's display filters: == != > < >= <= contains matches in {1, 2..5} not in, slices eth.src[0:3], & \
+ - * / %, && || ! \
and parentheses, any and all, layers ip.addr#2, @raw bytes, macros, len() count() lower() upper() string() vals() \
dec() hex() float() abs() \
max() min(). A test on a missing field is false. These options of tshark work: -r -w -c -t -q -z -T -e -E -O -j.";

const TUI_EXAMPLES: &str = "\
Examples:
  rdmascope tui trace.pcapng
  rdmascope tui trace.pcapng -Y 'smb2.cmd == 8'
  rdmascope tui -F growing.pcapng              keep reading while it grows
  tcpdump -w - | rdmascope tui -
  rdmascope tui -i eth0

The key ? shows all keys. Configuration is in $XDG_CONFIG_HOME/rdmascope/config.toml:
  theme = \"light\"
  time = \"clock\"
  columns = [\"smb2.msg_id\"]
  ignore = [\"RC-CNP\"]
  [keys]
  quit = [\"q\", \"F10\"]";

const EXPORT_EXAMPLES: &str = "\
Examples:
  rdmascope export annotated trace.pcap annotated.pcapng
  rdmascope export wireshark --install
  rdmascope export payloads trace.pcap files
  rdmascope export parquet trace.pcap tables";

const ANNOTATED_EXAMPLES: &str = "\
Examples:
  rdmascope export annotated trace.pcap annotated.pcapng
  wireshark annotated.pcapng        menu Analyze, Expert Information";

const WIRESHARK_EXAMPLES: &str = "\
Examples:
  rdmascope export wireshark --install
  rdmascope export wireshark --remove
  rdmascope export wireshark -o rdmascope.lua
  tshark -X lua_script:rdmascope.lua -r trace.pcap -Y rdmascope.finding";

const PARQUET_EXAMPLES: &str = "\
Examples:
  rdmascope export parquet monday.pcap tables
  rdmascope export parquet tuesday.pcap tables    adds a partition
  duckdb -c \"SELECT finding, text FROM 'tables/findings/*/*.parquet'\"";

const PAYLOADS_EXAMPLES: &str = "\
Examples:
  rdmascope export payloads trace.pcap files
  rdmascope export payloads sealed.pcap files --keys keys.txt";

const ANONYMIZE_EXAMPLES: &str = "\
Examples:
  rdmascope anonymize trace.pcapng to-send.pcapng
  rdmascope anonymize trace.pcapng to-send.pcapng --key-file key
  rdmascope anonymize trace.pcapng to-send.pcapng --keep mac --keep id
  rdmascope anonymize trace.pcapng to-send.pcapng --drop memory --drop time

A byte is kept only if it belongs to a field that identifies nobody; all others are replaced or blanked. Names, \
addresses and ids are \
replaced by others of the same length, equal ones by the same one. The report of the new capture says the same as that \
of the old one: \
compare both before you send it.";

const CUT_EXAMPLES: &str = "\
Examples:
  rdmascope cut trace.pcapng one.pcapng --connection 3
  rdmascope cut trace.pcapng late.pcapng --finding SMBD-CREDIT-LAST
  rdmascope cut trace.pcapng host.pcapng -Y 'ip.addr == 192.0.2.7'
  rdmascope cut trace.pcapng begin.pcapng --to 2.5
  rdmascope cut trace.pcapng slow.pcapng --request 1042

Connections are kept whole, with their handshakes, so the analysis of the new capture is the same.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  rdmascope compare client.pcapng server.pcapng
  rdmascope compare client.pcapng switch.pcapng server.pcapng   more points
  rdmascope compare client.pcapng server.pcapng -w both.pcapng   on one clock
  rdmascope compare client.pcapng server.pcapng --format html -o both.html
  rdmascope compare client.pcapng server.pcapng --requests all.csv

Packets are matched by values that routers do not change: queue pair, PSN, opcode and invariant CRC, or TCP sequence \
number and bytes. \
Segments that an adapter splits or joins between the points are matched by their position in the stream. A finding \
that depends on packets \
missing from one capture is withdrawn if the other capture has them.";

const DIFF_EXAMPLES: &str = "\
Examples:
  rdmascope diff before.pcapng after.pcapng
  rdmascope diff good-host.pcap bad-host.pcap --format json
  rdmascope diff yesterday.pcap today.pcap --fail   status 1 if they differ

A difference is reported if it is significant (1 % over all comparisons) and large enough to matter. If nothing \
differs, one line on standard error says so.

Exit status: 0 done; 1 done, and --fail found a difference; 2 wrong use, or input that cannot be read.";

const CAPTURE_EXAMPLES: &str = "\
Examples:
  rdmascope capture -D                capture sources, and what each can see
  rdmascope capture -i eth0 -w trace.pcapng      until Ctrl-C
  rdmascope capture -i eth0 -i eth1 -w trace.pcapng --headers-only
  rdmascope capture -i eth0 -f 'rdma or tcp port 9999'
  rdmascope capture -i eth0 -f everything -w all.pcapng -a duration:60
  rdmascope capture -i eth0 -w ring.pcapng -b filesize:100 -b files:10
  rdmascope capture -i eth0 -f tunnels -w mirror.pcapng --decapsulate
  rdmascope capture -i eth0 -w - | rdmascope dissect -

Capture filters join tests with and, or, not and parentheses:
  rdma         the default: roce or iwarp or smb or tunnels or extended
               or pause or fragments
  everything   all frames
  roce         RoCE: UDP port 4791, ethertype 0x8915
  iwarp        TCP ports 5445 and 20049, and MPA handshakes on any port,
               which is then captured from there on
  smb, nfs     TCP port 445; ports 2049, 20049 and 111
  tunnels      GRE, ERSPAN, VXLAN, GENEVE, IP in IP, MPLS, whatever they carry
  extended     IPv6 with extension headers: ports behind them are not found
  pause        Ethernet pause frames (PFC)
  fragments    IP fragments behind the first
  [src|dst] [tcp|udp] port N[-M]; [src|dst] host ADDRESS[/BITS]; ethertype N;
  proto N; vlan [N]; ip, ip6, arp, tcp, udp

SIGINT and SIGTERM end the capture and keep it, SIGHUP starts a new file. Each file ends with the statistics of its \
interfaces, drops \
included.

Exit status: 0 done; 2 wrong use, no such interface, no permission, or a full disk (the part already written is kept).";

const REPLAY_EXAMPLES: &str = "\
Examples:
  rdmascope replay trace.pcapng --plan         show the requests, send none
  rdmascope replay trace.pcapng --to 192.0.2.1 --user labuser --share share
  rdmascope replay trace.pcapng --to server.example --kerberos   after kinit
  rdmascope replay trace.pcapng --to 192.0.2.1 --pace 2       twice as fast
  rdmascope replay trace.pcapng --to 192.0.2.1 --no-rdma -w wire.pcapng
  rdmascope replay trace.pcapng --to 192.0.2.1 --prepare --report report.json

The password of --user comes from the environment variable RDMASCOPE_PASSWORD. Nothing is written to the server \
without --allow-writes. \
--kerberos needs a build with the feature kerberos.

Exit status: 0 all went as recorded; 1 something differs; 2 wrong use, or the connection failed.";

const PROBE_EXAMPLES: &str = "\
Examples:
  rdmascope probe --list
  rdmascope probe 192.0.2.1 --case Negotiate
  rdmascope probe 192.0.2.1 --user labuser --allow-writes -w failing.pcapng
  rdmascope probe 192.0.2.1 --format json > probe.json

Exit status: 0 all passed; 1 a case failed; 2 wrong use, or the server cannot be reached.";

const PEER_EXAMPLES: &str = "\
Examples:
  rdmascope peer                               files in memory, for everybody
  rdmascope peer --listen 0.0.0.0:5445 --share /srv/data
  RDMASCOPE_PASSWORD=secret rdmascope peer     clients need this password
  rdmascope peer --keytab /etc/krb5.keytab     clients need a Kerberos ticket
  rdmascope peer --fault wrong-key             write to a key that was not given

--keytab needs a build with the feature kerberos.

Linux can mount it through Soft-iWARP, if an siw device reaches ADDR:
  mount -t cifs //ADDR/share /mnt -o rdma,vers=3.1.1,username=USER";

const FIELDS_EXAMPLES: &str = "\
Examples:
  rdmascope fields smb_direct
  rdmascope fields | grep -i credit";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  rdmascope explain                            all findings, a line each
  rdmascope explain SMBD-CREDIT-LAST
  rdmascope explain smbd-neg                   findings with this beginning
  rdmascope explain credit                     a term";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  rdmascope schema                             the outputs with a schema
  rdmascope schema analyze > analyze.schema.json";

const RULES_EXAMPLES: &str = "\
Examples:
  rdmascope rules                              known bugs and their versions
  rdmascope rules --kernel 6.12.40             the bugs of this kernel
  rdmascope rules --write bugs.toml            write them to a file
  rdmascope rules --rules bugs.toml            with the changes in this file
  rdmascope analyze trace.pcapng --rules bugs.toml";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  rdmascope completions bash > /etc/bash_completion.d/rdmascope
  rdmascope completions fish > ~/.config/fish/completions/rdmascope.fish
  rdmascope completions zsh > _rdmascope       in a folder of $fpath";

const MAN_EXAMPLES: &str = "\
Examples:
  rdmascope man ~/.local/share/man/man1        then: man rdmascope-analyze";

/// Help of `--keys`, for each command that has it.
const KEYS: &str = "Decrypt and verify SMB 3 with the keys and passwords in this file (lines of smbinfo keys, of \
    Wireshark's \
    smb2_seskey_list, user=, password=), or, in a build with the feature kerberos, with a server's keytab";

/// Dissect and analyze captures of storage over RDMA: SMB Direct and NFS over RDMA, on RoCEv2, InfiniBand and iWARP.
#[derive(Debug, Parser)]
#[command(name = "rdmascope", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Colours: always, never, or only on a terminal (never if NO_COLOR is set)
    #[arg(long, value_name = "WHEN", value_parser = color(), num_args = 0..=1, default_value = "auto", default_missing_value = "always", global = true)]
    pub(crate) color: Color,
    /// Read known bugs and their versions from this file: it replaces built-in ones and adds new ones (rdmascope rules
    /// --write FILE makes one)
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) rules: Option<PathBuf>,
    /// The version, as in tshark
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Version)]
    pub(crate) tell_version: Option<bool>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn color() -> impl TypedValueParser<Value = Color> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(|when| match when.as_str() {
        "always" => Color::Always,
        "never" => Color::Never,
        _ => Color::Auto,
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Analyze(Box<Analyze>),
    Dissect(Box<Dissect>),
    Tui(Tui),
    Capture(Capture),
    Replay(Replay),
    Probe(Probe),
    Peer(Peer),
    Fields(Fields),
    Explain(Explain),
    Export(Export),
    Compare(Compare),
    Diff(Diff),
    Anonymize(Anonymize),
    Cut(Cut),
    Schema(Schema),
    Rules(Rules),
    Completions(Completions),
    Man(Man),
}

/// Handling of an output file that exists already.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Force {
    /// Overwrite an existing output file; an input file is never overwritten
    #[arg(long)]
    force: bool,
}

impl Force {
    pub(crate) fn existing(self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Keep }
    }
}

/// Destination of a comparison's result.
#[derive(Args, Clone, Debug)]
pub(crate) struct Outlet {
    /// Write the result to this file
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

impl Outlet {
    /// The path as the user gave it.
    pub(crate) fn path(&self) -> Option<&std::path::Path> {
        self.output.as_deref()
    }

    /// The file, if it is not standard output. It is created before the work begins, so that errors show early.
    pub(crate) fn create(&self, inputs: &[PathBuf]) -> Result<Option<WholeFile>, rdmascope_capture::Error> {
        let Some(path) = self.output.as_deref().filter(|path| *path != std::path::Path::new("-")) else {
            return Ok(None);
        };
        WholeFile::create(path, inputs, self.force.existing(), Access::Umask).map(Some)
    }
}

/// Input and output of a command that copies a capture.
#[derive(Args, Clone, Debug)]
pub(crate) struct Copied {
    /// The capture: pcap or pcapng, also inside gzip, zstd or lz4
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The capture to write, as pcapng; - is standard output
    #[arg(value_name = "OUT.pcapng")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    force: Force,
}

impl Copied {
    /// The file to write, if it is not standard output; only its owner may read it. `others` are inputs too, and are
    /// never overwritten.
    pub(crate) fn create(&self, others: &[PathBuf]) -> Result<Option<WholeFile>, rdmascope_capture::Error> {
        if self.output == std::path::Path::new("-") {
            return Ok(None);
        }
        let inputs = [std::slice::from_ref(&self.input), others].concat();
        WholeFile::create(&self.output, &inputs, self.force.existing(), Access::Private).map(Some)
    }
}

/// Follow every connection and say what went wrong
#[derive(Debug, Args)]
#[command(after_help = ANALYZE_EXAMPLES)]
pub(crate) struct Analyze {
    /// Captures: pcap, pcapng, ERF, snoop or Network Monitor, also inside gzip, zstd or lz4; - is standard input;
    /// several are merged by time
    #[arg(required_unless_present_any = ["interfaces", "read"], conflicts_with = "interfaces", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A capture, as with FILE
    #[arg(short = 'r', long = "read-file", value_name = "FILE", hide = true, conflicts_with = "interfaces")]
    pub(crate) read: Vec<PathBuf>,
    /// Stop after reading this many frames
    #[arg(short = 'c', long = "count", value_name = "N", hide = true, conflicts_with = "interfaces")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) usual: Usual,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// While capturing, print a line for each active connection at this interval, for example 10s; the report follows
    /// at the end. If the report is JSON or HTML on standard output, the lines go to standard error
    #[arg(long, value_name = "TIME", value_parser = period, requires = "interfaces", help_heading = "Live capture")]
    pub(crate) every: Option<std::time::Duration>,
    /// While capturing, serve Prometheus metrics at this port of 127.0.0.1, or at ADDRESS:PORT
    #[arg(long, value_name = "ADDR", value_parser = listen, requires = "interfaces", help_heading = "Live capture")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Stop capturing after this time
    #[arg(short = 'a', long, value_name = "duration:S", value_parser = capture_limit, requires = "interfaces", help_heading = "Live capture")]
    pub(crate) autostop: Vec<CaptureLimit>,
    /// Report only connections, findings and slowest requests with a frame that passes this display filter
    #[arg(short = 'Y', long = "filter", value_name = "FILTER", conflicts_with = "interfaces")]
    pub(crate) filter: Option<String>,
    /// Format of the report
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Write the report to this file
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
    /// Exit with status 1 if there are findings of this severity or worse; a finding that made a connection fail is an
    /// error, and the consequences of another one do not count
    #[arg(long, value_name = "SEVERITY", value_enum)]
    pub(crate) fail_on: Option<FailOn>,
    /// Leave out known findings, for example RC-CNP,SMB2-ERROR:server: they are neither shown nor counted by --fail-on;
    /// one line gives their number; config.toml can name others (ignore)
    #[arg(long, value_name = "ID[:SIDE],...", value_delimiter = ',', value_parser = Ignore::parse)]
    pub(crate) ignore: Vec<Ignore>,
    /// Check the capture against the expectations in this file (TOML: READ.p99 = "< 2ms"), print verdicts, and exit
    /// with status 1 if one does not hold; the report is written only with -o
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "filter"])]
    pub(crate) expect: Option<PathBuf>,
    /// Format of the verdicts
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Verdicts::Text, requires = "expect")]
    pub(crate) verdicts: Verdicts,
    /// Write expectations that this capture meets into this file, for use with --expect
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "filter"])]
    pub(crate) write_expect: Option<PathBuf>,
    /// Two queue pairs that form one connection, if the capture does not show it; may be repeated
    #[arg(long = "pin", value_name = "QP=QP", value_parser = pin)]
    pub(crate) pins: Vec<Pin>,
    #[arg(long, value_name = "KEYFILE", help = KEYS)]
    pub(crate) keys: Option<PathBuf>,
    /// Times in the report: u (time of day, UTC), a (time of day in the zone of TZ), r (since the first frame), e
    /// (seconds since 1970)
    #[arg(short = 't', value_name = "KIND", default_value = "u", value_parser = clock_kind)]
    pub(crate) clock: Clock,
    /// With --format json, list every request with its memory, RDMA, times and the SHA-256 of its payload
    #[arg(long)]
    pub(crate) exchanges: bool,
    /// With --format json, list the credits of both sides after every message
    #[arg(long)]
    pub(crate) credits: bool,
    /// Address of this manual's site: findings in the report lead to their pages there [default: docs-url in
    /// config.toml, else that of the build]
    #[arg(long, value_name = "URL", value_parser = Manual::parse)]
    pub(crate) docs_url: Option<Manual>,
    /// Do not verify invariant CRCs and MPA CRCs
    #[arg(long)]
    pub(crate) no_crc: bool,
    /// Maximum number of connections followed at a time; beyond it, the connection that was idle longest is dropped
    /// [default: 4096]
    #[arg(long, value_name = "N", value_parser = connections)]
    pub(crate) max_connections: Option<usize>,
    /// Memory for unfinished messages, packets behind a gap, open requests and remote keys of all connections; beyond
    /// it, the longest idle are dropped and the report says so [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<usize>,
    /// Number of threads that analyze; the report is the same for any [default: one per processor, at most 16]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

/// Find the packets of one capture in another made elsewhere: losses in between, changes on the way, one-way delays
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct Compare {
    /// The captures: at the client, at the server, and perhaps more; each is compared with the first
    #[arg(required = true, num_args = 2.., value_name = "CAPTURE")]
    pub(crate) captures: Vec<PathBuf>,
    /// Format of the result
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    #[command(flatten)]
    pub(crate) outlet: Outlet,
    /// Write all frames into this capture, with times by the clock of the first, and one interface for each capture
    #[arg(short = 'w', long = "write", value_name = "OUT.pcapng")]
    pub(crate) write: Option<PathBuf>,
    /// Write every request with its times at both points into this table (CSV)
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
}

/// Show how the second capture differs from the first: negotiated values, latencies, findings, losses, commands
#[derive(Debug, Args)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct Diff {
    /// The capture made before the change, or on the good host
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// The capture made after the change, or on the bad host
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Format of the differences
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(crate) format: TextOrJson,
    #[command(flatten)]
    pub(crate) outlet: Outlet,
    /// Exit with status 1 if something differs
    #[arg(long)]
    pub(crate) fail: bool,
    #[arg(long, value_name = "KEYFILE", help = KEYS)]
    pub(crate) keys: Option<PathBuf>,
}

/// Anonymize a capture: replace addresses, names, ids, secrets and contents, so that it can be shared
#[derive(Debug, Args)]
#[command(after_help = ANONYMIZE_EXAMPLES)]
pub(crate) struct Anonymize {
    #[command(flatten)]
    pub(crate) files: Copied,
    /// Replace with the key in this file: the same key gives the same replacements in every capture [default: a random
    /// key]
    #[arg(long, visible_alias = "key", value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Replacement of contents: zeros, or bytes that are the same for equal contents
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Contents::Zero)]
    pub(crate) payload: Contents,
    /// Keep data of this kind unchanged; may be repeated
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) keep: Vec<KeptKind>,
    /// Also replace data of this kind, which is kept by default; may be repeated
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) drop: Vec<Dropped>,
    /// Format of the report about replacements
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(crate) format: TextOrJson,
    /// Number of threads; the output is the same for any [default: one per processor, at most 16]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

/// Copy whole connections of a capture into a smaller one with the same analysis
#[derive(Debug, Args)]
#[command(after_help = CUT_EXAMPLES)]
pub(crate) struct Cut {
    #[command(flatten)]
    pub(crate) files: Copied,
    /// Copy connections with a frame that passes this display filter
    #[arg(short = 'Y', long = "filter", value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Copy the connection with this number in the report; may be repeated
    #[arg(long = "connection", value_name = "N")]
    pub(crate) connections: Vec<u32>,
    /// Copy connections with this finding, or with findings whose names begin with this; may be repeated
    #[arg(long = "finding", value_name = "ID")]
    pub(crate) findings: Vec<String>,
    /// Copy the connection of the request with this number in the report (analyze --exchanges), from the beginning to
    /// the end of the request; may be repeated
    #[arg(long = "request", value_name = "N")]
    pub(crate) requests: Vec<u64>,
    /// Copy only connections with a frame from this time on, in seconds since the first frame
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) from: Option<f64>,
    /// Copy only frames up to this time, in seconds since the first frame
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) to: Option<f64>,
    /// Leave out the other connections of the same SMB session, and those that a finding was compared with
    #[arg(long)]
    pub(crate) alone: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s: &f64| s.is_finite() && s.abs() < 1e9).ok_or_else(|| "a number of seconds".to_owned())
}

/// Replacement of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contents {
    Zero,
    Stream,
}

/// Kinds of data that identify a person, host or network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeptKind {
    /// Hardware addresses
    Mac,
    /// IP addresses and GIDs
    Address,
    /// Names of hosts, shares, users, domains and files
    Name,
    /// GUIDs, file handles, state ids
    Id,
    /// Security identifiers
    Sid,
    /// Numbers of users and groups
    User,
}

/// Kinds of data that are kept by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dropped {
    /// Remote keys and memory addresses, one for one
    Memory,
    /// Times of files, as zeros
    Time,
    /// Sizes of files, as zeros
    Size,
}

/// Form of a short report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    /// For a person
    Text,
    /// For programs: one object
    Json,
}

/// Write results in formats of other tools
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct Export {
    #[command(subcommand)]
    pub(crate) what: Exported,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Exported {
    /// Copy the capture as pcapng, with findings and requests as packet comments that Wireshark shows
    #[command(after_help = ANNOTATED_EXAMPLES)]
    Annotated {
        #[command(flatten)]
        capture: Captured,
        /// The capture to write
        #[arg(value_name = "OUT.pcapng")]
        output: PathBuf,
        #[command(flatten)]
        force: Force,
    },
    /// Write a plugin for Wireshark 4.0 and later: it repairs the decoding of storage over RDMA, and adds rdmascope's
    /// analysis as fields
    #[command(after_help = WIRESHARK_EXAMPLES)]
    Wireshark {
        /// The file to write, - for standard output [default: rdmascope.lua]
        #[arg(short, long, value_name = "FILE", conflicts_with_all = ["install", "remove"])]
        output: Option<PathBuf>,
        #[command(flatten)]
        force: Force,
        /// Install the plugin with its engine in your Wireshark's plugin folder, link this program into its folder of
        /// capture sources, and test both with the tshark that is found
        #[arg(long, group = "place")]
        install: bool,
        /// Remove the files that --install wrote
        #[arg(long, group = "place")]
        remove: bool,
        /// Your personal Wireshark folder, if it is not found
        #[arg(long, value_name = "DIR", requires = "place")]
        dir: Option<PathBuf>,
    },
    /// Write tables of frames, messages, requests, findings and credits for DuckDB, Spark and Polars
    #[command(after_help = PARQUET_EXAMPLES)]
    Parquet {
        #[command(flatten)]
        capture: Captured,
        /// The folder of the tables, created if missing; each capture adds a partition to each table
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Write the data that READ and WRITE moved, as files with their names
    #[command(after_help = PAYLOADS_EXAMPLES)]
    Payloads {
        #[command(flatten)]
        capture: Captured,
        /// The folder to write into: empty, created if missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Input of an export.
#[derive(Debug, Args)]
pub(crate) struct Captured {
    /// The capture: pcap or pcapng, also inside gzip, zstd or lz4
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[arg(long, value_name = "KEYFILE", help = KEYS)]
    pub(crate) keys: Option<PathBuf>,
}

impl Captured {
    /// The input files, which no output may overwrite.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        [Some(&self.file), self.keys.as_ref()].into_iter().flatten().cloned().collect()
    }
}

/// Form of `analyze`'s report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For a person
    Text,
    /// For programs: one object
    Json,
    /// One page with tables and plots that opens without a network
    Html,
}

/// Format of the verdicts on expectations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verdicts {
    /// For a person
    Text,
    /// JUnit's XML
    Junit,
    /// The Test Anything Protocol
    Tap,
    /// SARIF 2.1.0
    Sarif,
}

/// The least severity for which `analyze` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Error,
    Warn,
    Note,
}

/// Two queue pairs of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin(pub(crate) u32, pub(crate) u32);

fn pin(text: &str) -> Result<Pin, String> {
    let number = |text: &str| match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let (one, other) = text.split_once('=').ok_or("two queue pair numbers with = between them, as in 0x11=0x12")?;
    match (number(one), number(other)) {
        (Some(a), Some(b)) if a < 1 << 24 && b < 1 << 24 => Ok(Pin(a, b)),
        _ => Err("queue pair numbers are decimal or 0x with hexadecimal digits, below 0x1000000".to_owned()),
    }
}

fn connections(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (2..=16_777_216).contains(n)).ok_or_else(|| "a number from 2 to 16777216".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(|| "a number from 1 to 64".to_owned())
}

/// Options of tshark that decide on names: accepted and ignored, since names are never resolved.
#[derive(Debug, Args)]
pub(crate) struct Names {
    /// Accepted and ignored
    #[arg(short = 'n', hide = true)]
    pub(crate) none: bool,
    /// The same
    #[arg(short = 'N', value_name = "FLAGS", hide = true, value_parser = name_flags)]
    pub(crate) flags: Vec<String>,
    /// The same
    #[arg(short = 'H', value_name = "FILE", hide = true, value_parser = hosts_file)]
    pub(crate) hosts: Option<String>,
}

/// Options of tshark that change nothing about a report: accepted and ignored.
#[derive(Debug, Args)]
pub(crate) struct Usual {
    /// Accepted and ignored: a report has no line for each frame
    #[arg(short = 'q', hide = true)]
    pub(crate) quiet: bool,
    /// Accepted and ignored: a report is made at the end, when everything is known
    #[arg(short = '2', hide = true)]
    pub(crate) twice: bool,
    #[command(flatten)]
    pub(crate) names: Names,
}

fn hosts_file(text: &str) -> Result<String, String> {
    match std::fs::File::open(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(e) => Err(format!("it cannot be read: {e}")),
    }
}

/// Letters of tshark, or a file with names.
fn name_flags(text: &str) -> Result<String, String> {
    let is_flags = !text.is_empty() && text.chars().all(|c| "dgmnNstvV".contains(c));
    if is_flags { Ok(text.to_owned()) } else { hosts_file(text) }
}

/// Show frames: one line each, all fields, or as data for programs
#[derive(Debug, Args)]
#[command(after_help = DISSECT_EXAMPLES)]
pub(crate) struct Dissect {
    /// Captures: pcap or pcapng, also inside gzip, zstd or lz4; - is standard input; several are merged by time
    #[arg(required_unless_present_any = ["read", "glossary"], value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A capture, as with FILE
    #[arg(short = 'r', long = "read-file", value_name = "FILE", help_heading = "As in tshark")]
    pub(crate) read: Vec<PathBuf>,
    /// Show only frames that pass this display filter
    #[arg(short = 'Y', long = "filter", visible_alias = "display-filter", value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    #[arg(long, short_alias = 'K', value_name = "KEYFILE", help = KEYS)]
    pub(crate) keys: Option<PathBuf>,
    /// Stop after reading this many frames
    #[arg(short = 'c', long = "count", value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop after showing this many frames
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Write the frames that the filter passes into this capture, and print none unless -P is given too; - is standard
    /// output
    #[arg(short = 'w', long = "write", value_name = "OUT")]
    pub(crate) write: Option<PathBuf>,
    /// Format of what -w writes: pcapng, pcap (microseconds) or nsecpcap [default: that of the input]
    #[arg(short = 'F', value_name = "FORMAT", requires = "write", value_enum)]
    pub(crate) write_format: Option<WriteFormat>,
    #[command(flatten)]
    pub(crate) force: Force,
    /// Also print the frames that -w writes
    #[arg(short = 'P', long = "print", help_heading = "As in tshark")]
    pub(crate) print: bool,
    /// Times of lines: r (since the first frame), d, dd (since the frame before, since the one shown before), e
    /// (epoch), a, ad, adoy (local), u, ud, udoy (UTC); .9 behind it gives nine digits
    #[arg(short = 't', value_name = "KIND", default_value = "r", value_parser = time_kind, help_heading = "As in tshark")]
    pub(crate) time: Times,
    /// Show the fields of these protocols as trees, and one line for each other protocol
    #[arg(
        short = 'O',
        value_name = "PROTOCOL[,…]",
        value_delimiter = ',',
        conflicts_with = "format",
        help_heading = "As in tshark"
    )]
    pub(crate) only: Vec<String>,
    /// In -T json, ek and pdml, write only these protocols
    #[arg(
        short = 'j',
        short_alias = 'J',
        value_name = "PROTOCOL[ …]",
        value_delimiter = ' ',
        help_heading = "As in tshark"
    )]
    pub(crate) protocols: Vec<String>,
    // no docstring: brackets would be links there
    #[arg(
        short = 'z',
        value_name = "TABLE",
        help = "Print a table over all frames: io,stat,SECONDS[,FILTER]… io,phs conv,KIND endpoints,KIND smb2,srt \
            rpc,srt expert \
                follow,tcp,ascii,N; \
                may be given several times",
        help_heading = "As in tshark"
    )]
    pub(crate) tables: Vec<String>,
    /// Print only the tables of -z, no frames
    #[arg(short = 'q', short_alias = 'Q', help_heading = "As in tshark")]
    pub(crate) quiet: bool,
    /// Write each frame at once, also into a pipe
    #[arg(short = 'l', help_heading = "As in tshark")]
    pub(crate) line_buffered: bool,
    /// Print this between frames
    #[arg(short = 'S', value_name = "TEXT", allow_hyphen_values = true, help_heading = "As in tshark")]
    pub(crate) separator: Option<String>,
    /// Decode this port as this protocol: udp.port==N,infiniband. iWARP is recognized on every port
    #[arg(short = 'd', value_name = "PORT,PROTOCOL", value_parser = decode_as, help_heading = "As in tshark")]
    pub(crate) decode_as: Vec<DecodeAs>,
    /// Print a list instead of frames: fields, protocols or values
    #[arg(short = 'G', value_name = "WHAT", value_enum, num_args = 0..=1, default_missing_value = "fields", help_heading = "As in tshark")]
    pub(crate) glossary: Option<Glossary>,
    #[command(flatten)]
    pub(crate) names: Names,
    /// Read the capture twice: requests then show the frame that answers them (smb2.response_in, rpc.reqframe),
    /// fragments the frame that completes their message (smb_direct.reassembled_in), and frames all findings that
    /// analyze has of them (rdmascope.finding.id)
    #[arg(short = '2', help_heading = "As in tshark")]
    pub(crate) twice: bool,
    /// Accepted and ignored: memory is bounded, and all protocols are on
    #[arg(short = 'M', value_name = "N", hide = true)]
    pub(crate) reset: Option<u64>,
    /// The same
    #[arg(long, value_name = "PROTOCOL", hide = true)]
    pub(crate) enable_protocol: Vec<String>,
    /// Accepted and ignored: only its owner may read a new file
    #[arg(short = 'g', hide = true)]
    pub(crate) group: bool,
    /// Accepted and ignored: names are never resolved, written or read
    #[arg(short = 'W', value_name = "n", hide = true)]
    pub(crate) with_names: Option<String>,
    /// Accepted and ignored: there is no log
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub(crate) log_level: Option<String>,
    #[arg(short = 'u', value_name = "UNIT", hide = true, value_parser = seconds_only)]
    pub(crate) unit: Option<String>,
    #[arg(long, value_name = "PROTOCOL", hide = true, value_parser = no_switches)]
    pub(crate) only_protocols: Vec<String>,
    #[arg(long, value_name = "MODE", hide = true, value_parser = no_hexdump)]
    pub(crate) hexdump: Option<String>,
    #[arg(short = 'o', value_name = "PREFERENCE", hide = true, value_parser = no_preferences)]
    pub(crate) preferences: Vec<String>,
    #[arg(short = 'C', value_name = "PROFILE", hide = true, value_parser = no_profiles)]
    pub(crate) profile: Option<String>,
    #[arg(short = 'X', value_name = "EXTENSION", hide = true, value_parser = no_extensions)]
    pub(crate) extension: Vec<String>,
    #[arg(short = 'i', value_name = "IFACE", hide = true, value_parser = no_interfaces)]
    pub(crate) interface: Option<String>,
    #[arg(short = 'a', value_name = "CONDITION", hide = true, value_parser = no_end)]
    pub(crate) end: Vec<String>,
    #[arg(short = 'b', value_name = "CONDITION", hide = true, value_parser = no_ring)]
    pub(crate) ring: Vec<String>,
    #[arg(short = 'f', value_name = "FILTER", hide = true, value_parser = no_capture_filter)]
    pub(crate) capture_filter: Option<String>,
    #[arg(short = 'D', value_name = "NOTHING", num_args = 0..=1, default_missing_value = "", hide = true, value_parser = no_list)]
    pub(crate) list: Option<String>,
    /// Accepted and ignored: a file is no interface
    #[arg(short = 'p', hide = true)]
    pub(crate) not_promiscuous: bool,
    #[arg(short = 'R', value_name = "FILTER", hide = true, value_parser = no_read_filter)]
    pub(crate) read_filter: Option<String>,
    /// Write the contents of files that were read or written, instead of showing frames: smb,DIR or nfs,DIR. DIR must
    /// be empty unless --force is given
    #[arg(long, value_name = "KIND,DIR", value_parser = objects, help_heading = "As in tshark")]
    pub(crate) export_objects: Option<Objects>,
    #[arg(long, value_name = "PROTOCOL", hide = true, value_parser = no_switches)]
    pub(crate) disable_protocol: Vec<String>,
    /// Show every field as a tree, with its position in bytes: [42+20] is 20 bytes at offset 42
    #[arg(short = 'V', long = "tree")]
    pub(crate) tree: bool,
    /// Show bytes: those of the frame, and of messages reassembled from several frames
    #[arg(short = 'x', long = "hex")]
    pub(crate) hex: bool,
    /// Format of the output
    #[arg(short = 'T', long = "format", value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    /// A field to print with -T fields, csv, json or ek; may be repeated
    #[arg(short = 'e', long = "field", value_name = "FIELD")]
    pub(crate) fields: Vec<String>,
    /// How -T fields prints: header=y, separator=/t|/s|C, occurrence=a|f|l, aggregator=C, quote=d|s|n, escape=y|n,
    /// bom=y
    #[arg(short = 'E', value_name = "KEY=VALUE[,…]")]
    pub(crate) options: Vec<String>,
    /// In JSON, write a key that occurs several times once, with an array of its values (otherwise keys repeat, as in
    /// tshark)
    #[arg(long)]
    pub(crate) no_duplicate_keys: bool,
    /// Names and structure in JSON, EK and PDML: those of tshark, or short: our own, where each subtree has the name of
    /// a field
    #[arg(long, value_name = "NAMES", value_enum, default_value = "tshark")]
    pub(crate) json_names: JsonNames,
    /// Count frames and bytes per protocol instead of showing frames; with -T json as one object
    #[arg(short = 's', long = "summary", conflicts_with_all = ["tree", "hex", "fields", "options"])]
    pub(crate) summary: bool,
    /// Number of threads; the output is the same for any [default: one per processor, at most 16]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

/// Form of `dissect`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line per frame
    Text,
    /// One JSON array, as tshark writes it
    Json,
    /// JSON for Elasticsearch's bulk API: two lines per frame
    Ek,
    /// Packet Details Markup Language (XML)
    Pdml,
    /// The fields given by -e, a line per frame
    Fields,
    /// The same as CSV, with a header (RFC 4180); without -e, the columns of a table of frames
    Csv,
    /// One line per frame, with tabs between the columns
    Tabs,
    /// The same as XML
    Psml,
    /// The same as JSON, with the bytes, position and length of each field instead of its value
    Jsonraw,
    /// As text
    #[value(hide = true)]
    Ps,
}

/// Naming of fields in output for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JsonNames {
    Tshark,
    Short,
}

/// Format of what `dissect -w` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteFormat {
    Pcapng,
    Pcap,
    Nsecpcap,
}

/// Lists of `dissect -G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Glossary {
    Fields,
    Protocols,
    Values,
}

/// A value of `dissect -d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeAs {
    /// RoCEv2 on this UDP port.
    Roce(u16),
    /// The protocol that is found without `-d`.
    Found,
}

fn decode_as(text: &str) -> Result<DecodeAs, String> {
    let (port, protocol) = text.split_once(',').ok_or("PORT,PROTOCOL is expected, as in udp.port==4791,infiniband")?;
    let (table, number) = port.split_once("==").unwrap_or((port, ""));
    let number = number.parse::<u16>().ok().filter(|n| *n > 0);
    match (table, number, protocol) {
        ("udp.port", Some(port), "infiniband" | "rroce") => Ok(DecodeAs::Roce(port)),
        ("tcp.port", _, "iwarp_mpa" | "rpc" | "nbss" | "smb2" | "smb") => Ok(DecodeAs::Found),
        ("infiniband", ..) => Ok(DecodeAs::Found),
        _ => Err("only udp.port==N,infiniband is possible; iWARP, SMB and RPC are recognized on every port".into()),
    }
}

fn time_kind(text: &str) -> Result<Times, String> {
    Times::parse(text).ok_or_else(|| {
        let keys: Vec<&str> = times::KEYS.iter().map(|(key, _)| *key).collect();
        format!("there are {}", keys.join(", "))
    })
}

/// A size in bytes, or with K, M or G; at least 1 MiB.
fn memory(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_usize << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit)).filter(|bytes| *bytes >= 1 << 20);
    bytes.ok_or_else(|| "a size of 1M or more, as in 512M or 2G".into())
}

fn clock_kind(text: &str) -> Result<Clock, String> {
    Clock::parse(text).ok_or_else(|| "a report has the kinds u, a, r and e; dissect -t has more for frames".into())
}

/// Options of tshark that do not exist here: the error names the replacement.
fn no_preferences(_: &str) -> Result<String, String> {
    Err("there are no preferences: keys are given by --keys, ports by -d".into())
}

fn seconds_only(text: &str) -> Result<String, String> {
    if text == "s" {
        Ok(text.into())
    } else {
        Err("times are in seconds; -t chooses since when, or the time of day".into())
    }
}

fn no_hexdump(_: &str) -> Result<String, String> {
    Err("-x shows the bytes of frames and of reassembled messages".into())
}

fn no_profiles(_: &str) -> Result<String, String> {
    Err("there are no profiles: -e chooses columns, -Y filters".into())
}

fn no_extensions(_: &str) -> Result<String, String> {
    Err("extensions are not supported; rdmascope export wireshark makes a plugin for Wireshark".into())
}

fn no_end(_: &str) -> Result<String, String> {
    Err("a file is read to its end: -c N reads N frames; rdmascope capture has -a".into())
}

fn no_ring(_: &str) -> Result<String, String> {
    Err("-w writes one file; rdmascope capture has -b".into())
}

fn no_list(_: &str) -> Result<String, String> {
    Err("dissect reads files; rdmascope capture -D lists interfaces".into())
}

fn no_capture_filter(_: &str) -> Result<String, String> {
    Err("a file is filtered by -Y; rdmascope capture has -f".into())
}

fn no_interfaces(_: &str) -> Result<String, String> {
    Err("dissect reads files: rdmascope capture -i IFACE -w - | rdmascope dissect -".into())
}

fn no_read_filter(_: &str) -> Result<String, String> {
    Err("there is one pass: filter with -Y".into())
}

/// Kind and folder of `dissect --export-objects`.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    pub(crate) family: Family,
    pub(crate) folder: PathBuf,
}

fn objects(text: &str) -> Result<Objects, String> {
    let (kind, folder) =
        text.split_once(',').filter(|(_, folder)| !folder.is_empty()).ok_or("KIND,DIR is expected, as in smb,files")?;
    let family = match kind {
        "smb" => Family::Smb2,
        "nfs" => Family::Rpc,
        _ => return Err("the kind is smb or nfs".to_owned()),
    };
    Ok(Objects { family, folder: folder.into() })
}

fn no_switches(_: &str) -> Result<String, String> {
    Err("protocols cannot be switched off: filter with -Y, or choose with -O and -j".into())
}

/// Explore captures in the terminal: connections, frames, I/O, credits, findings
#[derive(Debug, Args)]
#[command(after_help = TUI_EXAMPLES)]
pub(crate) struct Tui {
    /// Captures: pcap or pcapng, also inside gzip, zstd or lz4; - is standard input; several are merged by time
    #[arg(required_unless_present = "interfaces", conflicts_with = "interfaces", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Start with this display filter
    #[arg(short = 'Y', long = "filter", value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Keep reading as the file grows
    #[arg(short = 'F', long, conflicts_with = "interfaces")]
    pub(crate) follow: bool,
    /// Two queue pairs that form one connection, if the capture does not show it; may be repeated
    #[arg(long = "pin", value_name = "QP=QP", value_parser = pin)]
    pub(crate) pins: Vec<Pin>,
    #[arg(long, value_name = "KEYFILE", help = KEYS)]
    pub(crate) keys: Option<PathBuf>,
    /// Do not verify invariant CRCs and MPA CRCs
    #[arg(long)]
    pub(crate) no_crc: bool,
    /// Do not use or write an index, with which a large capture opens at once the next time ($XDG_CACHE_HOME/rdmascope)
    #[arg(long)]
    pub(crate) no_index: bool,
    /// Leave out known findings, for example RC-CNP,SMB2-ERROR:server, besides those of ignore in config.toml
    #[arg(long, value_name = "ID[:SIDE],...", value_delimiter = ',', value_parser = Ignore::parse)]
    pub(crate) ignore: Vec<Ignore>,
}

/// Interfaces, filter and limits of a live capture.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Live capture")]
pub(crate) struct LiveArgs {
    /// Capture from this interface; may be repeated; any means all that are up
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,
    /// Capture filter; the kernel drops all other frames (see rdmascope capture --help) [default: rdma]
    #[arg(short = 'f', long, value_name = "FILTER", requires = "interfaces")]
    pub(crate) capture_filter: Option<String>,
    /// Keep at most this many bytes of each frame
    #[arg(short = 's', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..=262_144), requires = "interfaces")]
    pub(crate) snapshot_length: Option<u32>,
    /// Kernel buffer of each interface, in MiB; with --sockets, of each socket [default: 64]
    #[arg(short = 'B', long, value_name = "MiB", value_parser = mebibytes, requires = "interfaces")]
    pub(crate) buffer_size: Option<usize>,
    /// Sockets per interface; the kernel spreads pairs of hosts over them [default: one for each thread that analyzes,
    /// but no more than the interface has queues]
    #[arg(long, value_name = "N", value_parser = sockets, requires = "interfaces")]
    pub(crate) sockets: Option<usize>,
    /// Do not use promiscuous mode
    #[arg(short = 'p', long, requires = "interfaces")]
    pub(crate) no_promiscuous: bool,
    /// Become this user once the interfaces are open [default: the user who called sudo]
    #[arg(long, value_name = "NAME", requires = "interfaces")]
    pub(crate) user: Option<String>,
    /// Capture through libpcap (if built with the feature libpcap)
    #[arg(long, requires = "interfaces")]
    pub(crate) libpcap: bool,
    /// Folder in which the kernel lists RDMA devices and their counters
    #[arg(long, value_name = "DIR", default_value = rdmascope_capture::live::rdma::SYS, hide = true)]
    pub(crate) rdma_root: PathBuf,
}

fn period(text: &str) -> Result<std::time::Duration, String> {
    let (number, unit) = text.find(|c: char| c.is_ascii_alphabetic()).map_or((text, "s"), |at| text.split_at(at));
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time such as 10s, 500ms or 1m is expected".to_owned()),
    };
    match number.parse::<f64>() {
        Ok(n) if (0.1..=86_400.0).contains(&(n * factor)) => Ok(std::time::Duration::from_secs_f64(n * factor)),
        _ => Err("a time from 100ms to 24h is expected".to_owned()),
    }
}

fn listen(text: &str) -> Result<std::net::SocketAddr, String> {
    let text = text.strip_prefix(':').unwrap_or(text);
    match text.parse::<u16>() {
        Ok(port) => Ok((std::net::Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => {
            text.parse().map_err(|_| "a port, or ADDRESS:PORT with a number for an address, is expected".to_owned())
        }
    }
}

fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| {
        "ADDRESS:PORT with a number for an address is expected, such as 127.0.0.1:5445 or [::1]:445".to_owned()
    })
}

fn mebibytes(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (2..=16_384).contains(n)).ok_or_else(|| "a number from 2 to 16384".to_owned())
}

fn sockets(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(|| "a number from 1 to 64".to_owned())
}

/// Capture from interfaces, into a file or a ring of files
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_EXAMPLES)]
pub(crate) struct Capture {
    /// List capture sources and what each can see
    #[arg(short = 'D', long, conflicts_with = "interfaces")]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Write pcapng to this file, - for standard output; without it, frames are only counted
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
    /// Start a new file after filesize:MB or duration:S, and keep files:N of them; may be repeated
    #[arg(short = 'b', long, value_name = "KEY:N", value_parser = file_limit, requires = "write")]
    pub(crate) ring: Vec<CaptureLimit>,
    /// Stop after duration:S, packets:N, filesize:MB or files:N; may be repeated
    #[arg(short = 'a', long, value_name = "KEY:N", value_parser = capture_limit)]
    pub(crate) autostop: Vec<CaptureLimit>,
    /// Stop after this many frames
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Keep only what the analysis needs: whole messages, but no bulk data of RDMA Reads and Writes
    #[arg(long)]
    pub(crate) headers_only: bool,
    /// Remove the tunnel of mirrored frames (ERSPAN, GRE, VXLAN, GENEVE); each mirror session becomes an interface of
    /// its own
    #[arg(long)]
    pub(crate) decapsulate: bool,
    /// Analyze while capturing, and serve Prometheus metrics at this port of 127.0.0.1, or at ADDRESS:PORT
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// With --metrics, do not verify invariant CRCs and MPA CRCs
    #[arg(long, requires = "metrics")]
    pub(crate) no_crc: bool,
    /// With --metrics, number of threads that analyze [default: one per processor, at most 16]
    #[arg(long, value_name = "N", value_parser = threads, requires = "metrics")]
    pub(crate) threads: Option<usize>,
    /// Print errors only
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// A limit of a capture or of one of its files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CaptureLimit {
    /// Bytes; the command line has MB.
    Bytes(u64),
    Time(std::time::Duration),
    Packets(u64),
    Files(u32),
}

fn capture_limit(text: &str) -> Result<CaptureLimit, String> {
    let expected = || "filesize:MB, duration:SECONDS, packets:N or files:N is expected".to_owned();
    let (key, value) = text.split_once(':').ok_or_else(expected)?;
    let number: f64 =
        value.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0 && *n < 1e12).ok_or_else(expected)?;
    let whole = (number.fract() == 0.0).then_some(number as u64);
    match (key, whole) {
        ("filesize", _) => Ok(CaptureLimit::Bytes((number * 1e6) as u64)),
        ("duration", _) => Ok(CaptureLimit::Time(std::time::Duration::from_secs_f64(number))),
        ("packets", Some(n)) => Ok(CaptureLimit::Packets(n)),
        ("files", Some(n)) => u32::try_from(n).map(CaptureLimit::Files).map_err(|_| expected()),
        _ => Err(expected()),
    }
}

fn file_limit(text: &str) -> Result<CaptureLimit, String> {
    match capture_limit(text)? {
        CaptureLimit::Packets(_) => Err("filesize:MB, duration:SECONDS or files:N is expected".to_owned()),
        limit => Ok(limit),
    }
}

/// Replay a captured SMB Direct session against a live server
///
/// Opens its own session, over userspace iWARP or RoCEv2 (no RDMA card is needed) or through a card, repeats the
/// recorded operations in order, and compares status, bytes, contents and latency.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub(crate) struct Replay {
    /// The capture: pcap or pcapng, also inside gzip, zstd or lz4; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The server [default port: 5445, over roce and verbs 445]
    #[arg(long, value_name = "HOST[:PORT]", required_unless_present = "plan")]
    pub(crate) to: Option<String>,
    /// Show only differences and totals
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Transport of the session
    #[arg(long, value_name = "TRANSPORT", value_parser = carrier(), default_value = "iwarp")]
    pub(crate) transport: Carrier,
    #[command(flatten)]
    pub(crate) class: Class,
    /// Connection of the capture, by its number in analyze [default: the one with the most requests]
    #[arg(long, value_name = "N")]
    pub(crate) connection: Option<u32>,
    /// Speed: recorded, asap, or a factor of the recorded speed
    #[arg(long, value_name = "PACE", default_value = "asap", value_parser = pace)]
    pub(crate) pace: rdmascope_replay::script::Pace,
    /// Also replay operations that change files on the server
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// First create the files and folders that the recording used, with the contents that it read; existing ones are
    /// not changed
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Only show the requests, and send nothing
    #[arg(long)]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) logon: Logon,
    /// The share
    #[arg(long, value_name = "SHARE", default_value = "share")]
    pub(crate) share: String,
    /// Write recorded and replayed results to this file, as JSON
    #[arg(long, value_name = "OUT")]
    pub(crate) report: Option<PathBuf>,
    /// Record our own connections as pcapng; over verbs, packets are reconstructed from what the card reports, and
    /// marked so
    #[arg(short = 'w', value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
    /// What if: move data inside the messages, without RDMA
    #[arg(long)]
    pub(crate) no_rdma: bool,
    /// What if: sign every request, and the data that RDMA moves if the server can
    #[arg(long, requires = "who", conflicts_with = "encrypt")]
    pub(crate) sign: bool,
    /// What if: encrypt every request, and the data that RDMA moves if the server can; otherwise no data moves by RDMA
    #[arg(long, requires = "who")]
    pub(crate) encrypt: bool,
    /// What if: this many SMB Direct credits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) credits: Option<u16>,
    /// What if: SMB Direct messages of at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(128..65536))]
    pub(crate) max_send: Option<u32>,
    /// What if: reassembled messages of at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(131_072..))]
    pub(crate) fragment: Option<u32>,
}

/// User of our own session.
#[derive(Debug, Args)]
#[group(id = "who", multiple = true)]
pub(crate) struct Logon {
    /// The user, as USER or DOMAIN\USER, with the password in RDMASCOPE_PASSWORD [default: anonymous]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Log on with Kerberos: with kinit's tickets, or with --user USER[@REALM] and the password in RDMASCOPE_PASSWORD
    #[cfg(feature = "kerberos")]
    #[arg(long)]
    pub(crate) kerberos: bool,
    /// The server's Kerberos name, if it is not cifs/HOST
    #[cfg(feature = "kerberos")]
    #[arg(long, value_name = "NAME[@REALM]", requires = "kerberos")]
    pub(crate) spn: Option<String>,
    /// The KDC [default: from KRB5_CONFIG or /etc/krb5.conf]
    #[cfg(feature = "kerberos")]
    #[arg(long, value_name = "HOST[:PORT]", requires = "kerberos")]
    pub(crate) kdc: Option<String>,
}

impl Logon {
    /// The user with a ticket, or with the password of the environment, or none. `host` is the server as the user named
    /// it.
    pub(crate) fn credentials(&self, host: &str) -> anyhow::Result<rdmascope_replay::smb2::Credentials> {
        use rdmascope_replay::smb2::Credentials;
        let password = password()?.unwrap_or_default();
        #[cfg(feature = "kerberos")]
        if self.kerberos {
            use anyhow::Context as _;
            use rdmascope_replay::kerberos::{Credential, Wanted};
            let mut wanted =
                Wanted { service: self.spn.clone(), kdc: self.kdc.clone(), ..Wanted::of_environment(host) };
            if let Some(user) = &self.user {
                wanted = wanted.with_password(user, &password).context("--user")?;
            }
            let found = Credential::find(&wanted, std::time::SystemTime::now()).context("no Kerberos ticket")?;
            return Ok(Credentials::Kerberos(Box::new(found)));
        }
        #[cfg(not(feature = "kerberos"))]
        let _ = host;
        Ok(self.user.as_ref().map_or(Credentials::Anonymous, |user| Credentials::new(user, &password)))
    }
}

/// The password of the environment, if it has one. An empty or unreadable password is an error.
pub(crate) fn password() -> anyhow::Result<Option<String>> {
    use std::env::VarError;
    match std::env::var("RDMASCOPE_PASSWORD") {
        Ok(password) if password.is_empty() => {
            anyhow::bail!("RDMASCOPE_PASSWORD is empty: unset it if no password is needed")
        }
        Ok(password) => Ok(Some(password)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => anyhow::bail!("RDMASCOPE_PASSWORD is not UTF-8"),
    }
}

/// Transport of our own session: a row of the transports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carrier(&'static rdmascope_replay::transport::Kind);

impl Carrier {
    /// Ready to connect.
    pub(crate) fn open(self, class: &Class) -> anyhow::Result<std::sync::Arc<dyn rdmascope_replay::transport::Fabric>> {
        use anyhow::Context as _;
        let fabric = (self.0.open)().with_context(|| format!("--transport {}", self.0.name))?;
        if class.dscp.is_none() && !class.no_ecn {
            return Ok(fabric);
        }
        let marked = fabric.with_class(class.dscp, !class.no_ecn);
        marked.with_context(|| {
            format!("--dscp and --no-ecn: --transport {} does not make its packets itself", self.0.name)
        })
    }
}

/// The class of our packets, where we make them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Class {
    /// Send packets with this differentiated services code point, over roce [default: 26; CNPs have 48]
    #[arg(long, value_name = "0-63", value_parser = clap::value_parser!(u8).range(0..64))]
    pub(crate) dscp: Option<u8>,
    /// Send packets that switches must not mark (not-ECT), over roce
    #[arg(long)]
    pub(crate) no_ecn: bool,
}

/// The transports by name, each with its line of help.
fn carrier() -> impl clap::builder::TypedValueParser<Value = Carrier> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    use rdmascope_replay::transport::{KINDS, Kind};
    let values = KINDS.iter().map(|kind| PossibleValue::new(kind.name).help(kind.text));
    PossibleValuesParser::new(values).map(|name| Carrier(Kind::named(&name).unwrap_or(&KINDS[0])))
}

fn pace(text: &str) -> Result<rdmascope_replay::script::Pace, String> {
    use rdmascope_replay::script::Pace;
    match text {
        "asap" => Ok(Pace::Asap),
        "recorded" => Ok(Pace::Times(1.0)),
        _ => match text.parse::<f64>() {
            Ok(factor) if factor.is_finite() && factor >= 0.001 => Ok(Pace::Times(factor)),
            _ => Err("recorded, asap or a number is expected".to_owned()),
        },
    }
}

/// Test an SMB Direct server's conformance
///
/// Each case opens its own connections, over userspace iWARP or RoCEv2 or through a card, and changes nothing on the
/// server unless --allow-writes is given. A server with a bug may crash or hang (ksmbd of Linux 6.12.107 stops when one
/// file is opened, closed and opened again while another connection has it open; 6.12.117 does not).
#[derive(Debug, Args)]
#[command(after_help = PROBE_EXAMPLES)]
pub(crate) struct Probe {
    /// The server [default port: 5445, over roce and verbs 445]
    #[arg(value_name = "HOST[:PORT]", required_unless_present = "list")]
    pub(crate) host: Option<String>,
    /// Transport of the connections
    #[arg(long, value_name = "TRANSPORT", value_parser = carrier(), default_value = "iwarp")]
    pub(crate) transport: Carrier,
    #[command(flatten)]
    pub(crate) class: Class,
    /// List the cases
    #[arg(long)]
    pub(crate) list: bool,
    /// Only cases whose names contain this; * matches anything
    #[arg(long, value_name = "PATTERN")]
    pub(crate) case: Option<String>,
    /// Leave out cases that can crash some servers, and repeat none: the default unless HOST is a loopback address
    #[arg(long, overrides_with = "no_gentle")]
    pub(crate) gentle: bool,
    /// Run all cases, and those that fail up to three times, whatever HOST is
    #[arg(long)]
    pub(crate) no_gentle: bool,
    /// Also run cases that wait minutes for a timer of the server
    #[arg(long)]
    pub(crate) slow: bool,
    #[command(flatten)]
    pub(crate) logon: Logon,
    /// The share, for SMB2 cases
    #[arg(long, value_name = "SHARE", default_value = "share")]
    pub(crate) share: String,
    /// Also run cases that write to a file; they create and remove it: rdmascope-probe.tmp
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Form of the output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ProbeFormat::Text)]
    pub(crate) format: ProbeFormat,
    /// Record failing cases as pcapng; over verbs, packets are reconstructed from what the card reports, and marked so
    #[arg(short = 'w', value_name = "FAILING.pcapng")]
    pub(crate) keep: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

/// Form of `probe`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeFormat {
    /// One line per case
    Text,
    /// One object
    Json,
}

/// Run a test SMB Direct server (no RDMA hardware needed)
///
/// Speaks userspace iWARP over TCP, RoCEv2 over UDP, or RDMA through a card. Its users are guests, unless
/// RDMASCOPE_PASSWORD is set: then it is the password of every user. One address may have 64 connections at a time, all
/// together 256.
#[derive(Debug, Args)]
#[command(after_help = PEER_EXAMPLES)]
pub(crate) struct Peer {
    /// Address to listen on [default: 127.0.0.1, with port 5445, or 445 over roce and verbs]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Transport of the sessions; over verbs, --listen is an address of the card, or 0.0.0.0 for all cards
    #[arg(long, value_name = "TRANSPORT", value_parser = carrier(), default_value = "iwarp")]
    pub(crate) transport: Carrier,
    #[command(flatten)]
    pub(crate) class: Class,
    /// Share this folder [default: a few files in memory]
    #[arg(long, value_name = "DIR")]
    pub(crate) share: Option<PathBuf>,
    /// The name of the share
    #[arg(long, value_name = "NAME", default_value = "share")]
    pub(crate) name: String,
    /// Let clients change the folder
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Let guests change the folder of a peer that other hosts can reach
    #[arg(long)]
    pub(crate) yes_guests_may_write: bool,
    /// Accept unsigned requests in sessions with a password or ticket: Linux's cifs.ko uses no RDMA in sessions that
    /// sign
    #[arg(long)]
    pub(crate) allow_unsigned: bool,
    /// Accept Kerberos tickets for the services in this keytab, and no other logon
    #[cfg(feature = "kerberos")]
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// Record all our connections as pcapng; over verbs, packets are reconstructed from what the card reports, and
    /// marked so
    #[arg(short = 'w', value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
    /// Break this one rule, to see how a client reacts; faults of packets (over roce) take @N for the Nth packet, @N-
    /// for it and all later ones, or @1/N for one in N at random
    #[arg(long, value_name = "NAME[@WHEN]", value_parser = fault)]
    pub(crate) fault: Option<PeerFault>,
    /// Random seed: the same seed affects the same packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) fault_seed: u64,
    /// List the faults
    #[arg(long)]
    pub(crate) list_faults: bool,
}

/// A fault of the peer: in its messages, or in its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerFault {
    Message(&'static rdmascope_replay::fault::Fault),
    Packet(rdmascope_replay::transport::packet_fault::PacketFault),
}

fn fault(name: &str) -> Result<PeerFault, String> {
    use rdmascope_replay::transport::packet_fault::{PacketFault, ParseError};
    if let Some(fault) = rdmascope_replay::fault::Fault::named(name) {
        return Ok(PeerFault::Message(fault));
    }
    name.parse::<PacketFault>().map(PeerFault::Packet).map_err(|e| match e {
        ParseError::Name(_) => "there is no such fault; --list-faults lists all".to_owned(),
        when => when.to_string(),
    })
}

/// List every field, of frames and of the analysis, in the format of tshark -G fields
///
/// P lines name protocols; F lines have label, name, type, protocol, base, mask and the section that specifies the
/// field, with tabs between them.
#[derive(Debug, Args)]
#[command(after_help = FIELDS_EXAMPLES)]
pub(crate) struct Fields {
    /// Only fields whose names begin with this
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
}

/// Explain a finding (the specification's sentence, usual causes, what to do) or a term (credit, ICRC, stall)
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct Explain {
    /// Name of a finding, or a term; without it, all findings are listed
    #[arg(value_name = "FINDING|TERM")]
    pub(crate) finding: Option<String>,
}

/// List the known implementation bugs that analyze detects, and the versions that have them
#[derive(Debug, Args)]
#[command(after_help = RULES_EXAMPLES)]
pub(crate) struct Rules {
    /// List only the bugs of this version of Linux; a suffix after - or + is ignored
    #[arg(long, value_name = "VERSION", conflicts_with = "write")]
    pub(crate) kernel: Option<String>,
    /// Write the bugs to this file, for use with --rules; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

/// Print the JSON Schema of an output
#[derive(Debug, Args)]
#[command(after_help = SCHEMA_EXAMPLES)]
pub(crate) struct Schema {
    /// The output; without it, all names are listed
    #[arg(value_name = "NAME", value_parser = SCHEMAS)]
    pub(crate) name: Option<String>,
}

/// Names of outputs that have a schema.
pub(crate) const SCHEMAS: [&str; 11] = [
    "analyze",
    "anonymize",
    "compare",
    "diff",
    "dissect",
    "dissect-ek",
    "dissect-raw",
    "dissect-summary",
    "expect-sarif",
    "probe",
    "replay",
];

/// Write shell completions to standard output
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Write the manual pages into a folder
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct Man {
    /// The folder, created if missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// The arguments with the verb that is missing: `rdmascope FILE` analyzes it, and flags of tshark's dissect.
pub(crate) fn with_verb(mut arguments: Vec<OsString>) -> Vec<OsString> {
    use clap::CommandFactory;
    let Some(first) = arguments.get(1).and_then(|a| a.to_str()) else { return arguments };
    let is_flag =
        ["-r", "-Y", "-T", "-e", "-z", "-q", "-n", "-t", "-c", "-O", "-w", "-x", "-2", "-d", "-N", "-G", "-l"]
            .iter()
            .any(|flag| first.starts_with(flag));
    let verb = if is_flag && !first.starts_with("--") {
        "dissect"
    } else if (first == "-" || !first.starts_with('-'))
        && Cli::command().find_subcommand(first).is_none()
        && is_file_name(first)
    {
        "analyze"
    } else {
        return arguments;
    };
    arguments.insert(1, verb.into());
    arguments
}

/// True if a word names a file rather than a verb: standard input, a file that exists, or a name that no verb has.
fn is_file_name(word: &str) -> bool {
    word == "-" || word.contains(['.', '/', '\\']) || std::path::Path::new(word).exists()
}

/// The verbs at the beginning of a command line, as words behind the program's name: ` export parquet`.
fn verbs_of(arguments: &[OsString]) -> String {
    use clap::CommandFactory;
    let (mut command, mut verbs, mut before) = (Cli::command(), String::new(), "");
    for word in arguments.iter().skip(1).filter_map(|a| a.to_str()) {
        let Some(found) = command.find_subcommand(word).cloned() else {
            // a flag of the program, with its value, may stand before the verb
            if word.starts_with('-') || matches!(before, "--color" | "--rules") {
                before = word;
                continue;
            }
            break;
        };
        verbs.extend([" ", found.get_name()]);
        command = found;
    }
    verbs
}

/// The problem with the command line, in one line, and the help that tells more.
pub(crate) fn one_line(e: &clap::Error, arguments: &[OsString]) -> String {
    let text = e.render().to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or("wrong use").trim_start_matches("error: ").to_owned();
    let mut message = first;
    if matches!(e.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::InvalidValue | ErrorKind::ArgumentConflict) {
        // the missing or possible values are on the following lines, up to an empty one
        let more: Vec<&str> = lines.by_ref().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
        if !more.is_empty() {
            message = format!("{message} {}", more.join(", "));
        }
    }
    // to escape a flag with `--` helps nobody: it would be taken for a file
    let tip = text.lines().find_map(|l| l.trim().strip_prefix("tip: ")).filter(|tip| !tip.contains("use '-- "));
    if let Some(tip) = tip {
        message = format!("{message}; {tip}");
    }
    // a flag that takes a number does not take one below 0
    if e.kind() == ErrorKind::UnknownArgument
        && let Some((flag, value)) = negative_value(arguments)
    {
        message = format!("invalid value '{value}' for '{flag}': the number must not be negative");
    }
    for (library, plain) in [
        ("invalid digit found in string", "a whole number is expected"),
        ("cannot parse integer from empty string", "a whole number is expected"),
        ("invalid float literal", "a number is expected"),
        ("number too large to fit in target type", "the number is too large"),
    ] {
        message = message.replace(library, plain);
    }
    // a flag that only exists to say what does its work has no value that could be wrong
    if let Some((flag, reason)) =
        message.strip_prefix("invalid value '' for '").and_then(|m| m.split_once(" [<NOTHING>]'"))
    {
        message = format!("{flag}{reason}");
    }
    if let Some((before, range)) = message.split_once(" is not in ")
        && let Some(range) = in_words(range)
    {
        message = format!("{before} is not {range}");
    }
    format!("{message} (see rdmascope{} --help)", verbs_of(arguments))
}

/// The first negative number that stands behind a flag, and the flag.
fn negative_value(arguments: &[OsString]) -> Option<(&str, &str)> {
    arguments.windows(2).find_map(|pair| {
        let (flag, value) = (pair.first()?.to_str()?, pair.get(1)?.to_str()?);
        let is_number = value.strip_prefix('-').is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
        (is_number && flag.starts_with('-')).then_some((flag, value))
    })
}

/// A range of numbers as the library writes it (`1..18446744073709551615`, `64..=262144`, `128..65536`), in words.
/// Without an end, it ends with the largest number of the type.
fn in_words(range: &str) -> Option<String> {
    let (from, to) = range.split_once("..")?;
    let from: u64 = from.parse().ok()?;
    let last = match to.strip_prefix('=') {
        Some(last) => last.parse().ok()?,
        None => to.parse::<u64>().ok()?.checked_sub(1)?,
    };
    const UNBOUNDED: u64 = i64::MAX as u64 - 1;
    Some(if last >= UNBOUNDED { format!("{from} or more") } else { format!("from {from} to {last}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Whatever reads SMB can be given keys.
    #[test]
    fn commands_that_read_smb_take_keys() {
        for verb in ["analyze", "dissect", "tui", "diff"] {
            let files: &[&str] = if verb == "diff" { &["a.pcap", "b.pcap"] } else { &["a.pcap"] };
            let line: Vec<&str> = ["rdmascope", verb, "--keys", "keys.txt"].iter().chain(files).copied().collect();
            assert!(Cli::try_parse_from(line).is_ok(), "{verb}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The verbs, and the verbs of verbs.
    fn verbs() -> Vec<clap::Command> {
        let mut all = vec![Cli::command()];
        let mut at = 0;
        while let Some(command) = all.get(at) {
            let more: Vec<_> = command.get_subcommands().cloned().collect();
            all.extend(more);
            at += 1;
        }
        all
    }

    #[test]
    fn every_verb_has_examples_that_fit_and_are_understood() {
        let mut tried = 0;
        for command in verbs() {
            let help = command
                .get_after_help()
                .unwrap_or_else(|| panic!("{} has no examples", command.get_name()))
                .to_string();
            assert!(help.starts_with("Examples:\n  "), "{}", command.get_name());
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 80, "{} wide: {line}", line.chars().count());
                let Some((_, words)) =
                    line.split_once("rdmascope ").filter(|(before, _)| !before.contains("lua_script"))
                else {
                    continue;
                };
                // a comment follows after three spaces; shell operators are not ours
                let words = words.split("   ").next().unwrap_or_default().split(['|', '>']).next().unwrap_or_default();
                let words = words.split('\'').enumerate().flat_map(|(i, part)| match i % 2 {
                    0 => part.split_whitespace().map(str::to_owned).collect(),
                    _ => vec![part.to_owned()],
                });
                if cfg!(not(feature = "kerberos")) && (line.contains("--kerberos") || line.contains("--keytab")) {
                    continue;
                }
                if let Err(e) = Cli::try_parse_from(std::iter::once("rdmascope".to_owned()).chain(words)) {
                    panic!("{line}: {e}");
                }
                tried += 1;
            }
        }
        assert!(tried > 50, "{tried} examples");
    }

    /// Words of a line of a shell, as far as documentation has them: quotes, and what ends a command.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (c, quote) {
                (c, Some(q)) if c == q => quote = None,
                (c, Some(_)) => word.get_or_insert_default().push(c),
                ('\'' | '"', None) => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (' ', None) => words.extend(word.take()),
                ('|' | '>' | '<' | ';' | '&' | '#', None) if word.is_none() => break,
                (c, None) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    /// Every command in a fence ` ```sh ` or ` ```console ` of the README and of the site is one that there is.
    #[test]
    fn commands_of_the_documentation_are_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut folders = vec![root.join("docs")];
        let mut pages = vec![root.join("README.md")];
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.extension().is_some_and(|e| e == "md") => pages.push(path),
                    false => {}
                }
            }
        }
        let mut tried = 0;
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            let mut fence = None;
            for line in text.lines() {
                if let Some(kind) = line.strip_prefix("```") {
                    fence = if fence.is_none() { Some(kind) } else { None };
                    continue;
                }
                let line = match fence {
                    Some("sh") => line,
                    Some("console") if line.starts_with("$ ") => &line[2..],
                    _ => continue,
                };
                let words = words(line);
                if words.iter().any(|w| w == "cargo") {
                    let folder =
                        words.iter().position(|w| w == "--path").map(|at| root.join(&words[at + 1]).join("Cargo.toml"));
                    assert!(folder.is_none_or(|f| f.is_file()), "{}: {line}", page.display());
                    if !words.iter().any(|w| w == "run") {
                        continue;
                    }
                }
                // behind cargo run, sudo, nsenter …
                let own = if words.iter().any(|w| w == "cargo") { "--" } else { "rdmascope" };
                let Some(at) = words.iter().position(|w| w == own) else { continue };
                // the group has the program's name
                if words[..at].iter().any(|w| w == "usermod") {
                    continue;
                }
                let arguments = std::iter::once("rdmascope".to_owned()).chain(words[at + 1..].iter().cloned());
                if cfg!(not(feature = "kerberos")) && words.iter().any(|w| w == "--kerberos" || w == "--keytab") {
                    continue;
                }
                match Cli::try_parse_from(arguments) {
                    Err(e) if e.use_stderr() => panic!("{}: {line}: {e}", page.display()),
                    _ => tried += 1,
                }
            }
        }
        assert!(tried > 40, "{tried} commands");
    }

    #[test]
    fn filters_of_examples_are_filters() {
        let registry = registry();
        let mut tried = 0;
        for command in verbs() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for text in help.lines().filter_map(|line| line.split_once("-Y '")?.1.split('\'').next()) {
                assert!(filter(Some(text), &registry).is_ok(), "{text}");
                tried += 1;
            }
        }
        assert!(tried >= 4, "{tried} filters");
    }

    #[test]
    fn wrong_use_is_reported_in_one_line() {
        for arguments in [
            vec!["rdmascope", "dissect"],
            vec!["rdmascope", "analyze", "a", "--pin", "5"],
            vec!["rdmascope", "analyze", "a", "--threads", "0"],
            vec!["rdmascope", "disect"],
            vec!["rdmascope", "dissect", "a", "-T", "xml"],
            vec!["rdmascope", "dissect", "a", "-c", "x"],
        ] {
            let e = Cli::try_parse_from(&arguments).unwrap_err();
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let line = one_line(&e, &arguments);
            assert!(!line.contains('\n') && line.len() > 20, "{arguments:?}: {line}");
        }
    }

    #[test]
    fn limits_of_captures_are_read() {
        use std::time::Duration;
        assert_eq!(capture_limit("filesize:1.5"), Ok(CaptureLimit::Bytes(1_500_000)));
        assert_eq!(capture_limit("duration:0.5"), Ok(CaptureLimit::Time(Duration::from_millis(500))));
        assert_eq!(capture_limit("packets:7"), Ok(CaptureLimit::Packets(7)));
        for wrong in ["", "7", "files:0", "files:1.5", "packets:-1", "duration:x", "size:1", "filesize:nan"] {
            assert!(capture_limit(wrong).is_err(), "{wrong}");
        }
        assert!(file_limit("packets:7").is_err());
    }

    #[test]
    fn times_and_addresses_are_read() {
        use std::time::Duration;
        assert_eq!(
            (period("10s"), period("500ms"), period("2m")),
            (Ok(Duration::from_secs(10)), Ok(Duration::from_millis(500)), Ok(Duration::from_secs(120)))
        );
        assert!(period("0s").is_err() && period("x").is_err() && period("5 d").is_err() && period("").is_err());
        assert_eq!(
            (listen("9418"), listen(":9418")),
            (Ok("127.0.0.1:9418".parse().unwrap()), Ok("127.0.0.1:9418".parse().unwrap()))
        );
        assert_eq!(listen("[::]:1"), Ok("[::]:1".parse().unwrap()));
        assert!(listen("host:1").is_err() && listen("").is_err());
    }

    #[test]
    fn queue_pairs_are_pinned_in_both_notations() {
        assert_eq!(pin("0x11=18"), Ok(Pin(0x11, 18)));
        for wrong in ["", "1", "1=", "=1", "0x1000000=1", "1=2=3", "-1=2", "x=y"] {
            assert!(pin(wrong).is_err(), "{wrong}");
        }
    }
}
