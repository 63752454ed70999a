//! Sessions by Kerberos, with strangers: the KDC, kinit and kvno of MIT Kerberos, and its GSS-API library at either
//! end. A realm of its own is made in a temporary folder, on a port of loopback; no root is needed. Takes a few
//! seconds.

mod tap;

use rdmascope_analyzer::env::Options as PipelineOptions;
use rdmascope_analyzer::keys::{CipherId, Dialect, Keyring, Tickets};
use rdmascope_dissector::wire::smb2::NtStatus;
use rdmascope_replay::kerberos::keytab::Keytab;
use rdmascope_replay::kerberos::{Credential, Initiator, Wanted};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::{Config, SmbDirect};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tap::{analyze, kept};

/// Time limit for anything that must happen, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const TOOLS: [&str; 5] =
    ["/usr/sbin/kdb5_util", "/usr/sbin/kadmin.local", "/usr/sbin/krb5kdc", "/usr/bin/kinit", "/usr/bin/kvno"];
/// Of each encryption type one: of 256 and 128 bits with SHA-1, of 128 and 256 with SHA-2.
const HOSTS: [&str; 4] = ["server.lab.example", "small.lab.example", "sha256.lab.example", "sha384.lab.example"];
/// Debian's, which has Debian's GSS-API.
const PYTHON: &str = "/usr/bin/python3";
/// The key of a session: GSS_C_INQ_SSPI_SESSION_KEY.
const PRELUDE: &str = "\
import gssapi, sys
from gssapi import raw
def told(token): print((token or b'').hex(), flush=True)
def heard(): return bytes.fromhex(sys.stdin.readline().strip())
def key(context): return raw.inquire_sec_context_by_oid(context, gssapi.OID.from_int_seq('1.2.840.113554.1.2.2.5.5'))[0]
";

/// A realm with a KDC, alice (password `secret`) and cifs/server.lab.example; it ends with this.
struct Realm {
    folder: tempfile::TempDir,
    kdc: Child,
}

impl Drop for Realm {
    fn drop(&mut self) {
        let _ = self.kdc.kill();
        let _ = self.kdc.wait();
    }
}

impl Realm {
    /// Prints a message and returns `None` if the tools are not installed.
    fn begin() -> Option<Self> {
        let gssapi = || {
            Command::new(PYTHON).args(["-c", "import gssapi"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        };
        if let Some(missing) = TOOLS
            .into_iter()
            .find(|tool| !Path::new(tool).exists())
            .or_else(|| (!gssapi()).then_some("gssapi of python3"))
        {
            let what =
                format!("{missing} is not there (Debian: krb5-kdc, krb5-admin-server, krb5-user, python3-gssapi)");
            assert!(std::env::var_os("CI").is_none(), "{what}");
            eprintln!("NOT TRIED: {what}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "[libdefaults]\n default_realm = LAB.EXAMPLE\n dns_lookup_kdc = false\n rdns = false\n \
                dns_canonicalize_hostname = false\n\
             [realms]\n LAB.EXAMPLE = {{\n  kdc = 127.0.0.1:{port}\n }}\n[domain_realm]\n .lab.example = LAB.EXAMPLE\n"
        );
        fs::write(folder.path().join("krb5.conf"), configuration).unwrap();
        let configuration = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n LAB.EXAMPLE \
                = {{\n\
             database_name = {at}/principal\n key_stash_file = {at}/stash\n acl_file = {at}/acl\n max_life = 10h\n }}\n\
             [logging]\n kdc = FILE:{at}/log\n admin_server = FILE:{at}/log\n"
        );
        fs::write(folder.path().join("kdc.conf"), configuration).unwrap();
        let path = |name: &str| folder.path().join(name);
        let tool = |name: &str| in_realm(Command::new(name), folder.path());
        let done = |mut command: Command| {
            let out = command.output().unwrap();
            assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        };
        let mut create = tool(TOOLS[0]);
        create.args(["create", "-s", "-P", "master", "-r", "LAB.EXAMPLE"]);
        done(create);
        for query in [
            "addprinc -pw secret +requires_preauth alice".to_owned(),
            "addprinc -randkey cifs/server.lab.example".to_owned(),
            "addprinc -randkey -e aes128-cts:normal cifs/small.lab.example".to_owned(),
            "addprinc -randkey -e aes128-cts-hmac-sha256-128:normal cifs/sha256.lab.example".to_owned(),
            "addprinc -randkey -e aes256-cts-hmac-sha384-192:normal cifs/sha384.lab.example".to_owned(),
            "addprinc -pw secret -e aes128-cts-hmac-sha256-128:normal +requires_preauth carol".to_owned(),
            "addprinc -pw secret -e aes256-cts-hmac-sha384-192:normal +requires_preauth dave".to_owned(),
            "addprinc -randkey cifs/other.lab.example".to_owned(),
            format!(
                "ktadd -norandkey -k {} cifs/server.lab.example cifs/small.lab.example cifs/sha256.lab.example \
                    cifs/sha384.lab.example",
                path("keytab").display()
            ),
            format!("ktadd -k {} cifs/other.lab.example", path("other.keytab").display()),
        ] {
            let mut admin = tool(TOOLS[1]);
            admin.args(["-q", &query]);
            done(admin);
        }
        let kdc = tool(TOOLS[2])
            .args(["-n", "-P"])
            .arg(path("pid"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let realm = Self { folder, kdc };
        let deadline = SystemTime::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(
                SystemTime::now() < deadline,
                "krb5kdc does not answer: {}",
                fs::read_to_string(realm.path("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(realm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str) -> Command {
        in_realm(Command::new(name), self.folder.path())
    }

    fn keytab(&self) -> Keytab {
        Keytab::read(&self.path("keytab")).unwrap()
    }

    /// Search criteria for the ticket that `kinit` stores in this realm.
    fn wanted(&self, host: &str) -> Wanted {
        Wanted {
            host: host.to_owned(),
            service: None,
            kdc: None,
            password: None,
            cache: format!("FILE:{}", self.path("cache").display()),
            configuration: self.path("krb5.conf").display().to_string(),
        }
    }

    fn kinit(&self) {
        let mut kinit =
            self.command(TOOLS[3]).arg("alice").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        kinit.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        assert!(kinit.wait().unwrap().success());
    }

    /// A program of Python's, line by line.
    fn python(&self, program: &str) -> Talk {
        let mut command = self.command(PYTHON);
        command.args(["-c", &format!("{PRELUDE}{program}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Talk { child, lines }
    }
}

fn in_realm(mut command: Command, folder: &Path) -> Command {
    command.env("KRB5_CONFIG", folder.join("krb5.conf")).env("KRB5_KDC_PROFILE", folder.join("kdc.conf"));
    command
        .env("KRB5CCNAME", format!("FILE:{}", folder.join("cache").display()))
        .env("KRB5_KTNAME", folder.join("keytab"));
    command.env("KRB5RCACHENAME", "none:");
    command
}

struct Talk {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Talk {
    fn heard(&mut self) -> Vec<u8> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the program ended");
        let digits = line.trim().as_bytes();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn tell(&mut self, bytes: &[u8]) {
        let line: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

fn peer(keytab: Keytab) -> SocketAddr {
    let content = (0..3_000_000u32).map(|n| n as u8).collect();
    tap::serving(Share::new("share", Storage::memory([("big.bin".to_owned(), content)]), true, Users::Kerberos(keytab)))
}

fn client(address: SocketAddr, options: Options, keep: &Path) -> Client {
    let config = Config { wire: Some(kept(keep)), ..Config::default() };
    Client::negotiate(SmbDirect::connect(address, &config, PATIENCE).unwrap(), options).unwrap()
}

fn now() -> SystemTime {
    SystemTime::now()
}

#[test]
fn tickets_come_from_the_cache_from_the_kdc_and_by_a_password() {
    let Some(realm) = Realm::begin() else { return };
    let host = "server.lab.example";
    // nothing there yet
    let error = Credential::find(&realm.wanted(host), now()).unwrap_err().to_string();
    assert!(error.contains("cache cannot be read"), "{error}");
    realm.kinit();
    let by_tgt = Credential::find(&realm.wanted(host), now()).unwrap();
    assert_eq!(
        (by_tgt.client.to_string(), by_tgt.server.to_string()),
        ("alice@LAB.EXAMPLE".into(), "cifs/server.lab.example@LAB.EXAMPLE".into())
    );
    // of 128 bits
    Credential::find(&realm.wanted("small.lab.example"), now()).unwrap();
    // kvno puts it into the cache, and then no KDC is needed
    assert!(realm.command(TOOLS[4]).arg("cifs/server.lab.example").stdout(Stdio::null()).status().unwrap().success());
    let wanted = Wanted { kdc: Some("127.0.0.1:1".into()), ..realm.wanted(host) };
    Credential::find(&wanted, now()).unwrap();
    let error =
        Credential::find(&Wanted { host: "small.lab.example".into(), ..wanted }, now()).unwrap_err().to_string();
    assert!(error.starts_with("the KDC 127.0.0.1:1: "), "{error}");
    // a name of its own
    let named = Wanted { service: Some("cifs/other.lab.example".into()), ..realm.wanted("192.0.2.1") };
    assert_eq!(Credential::find(&named, now()).unwrap().server.to_string(), "cifs/other.lab.example@LAB.EXAMPLE");
    let error = Credential::find(&realm.wanted("nobody.lab.example"), now()).unwrap_err().to_string();
    assert!(error.contains("KDC_ERR_S_PRINCIPAL_UNKNOWN"), "{error}");
    // tomorrow, all is over
    let error = Credential::find(&realm.wanted(host), now() + Duration::from_secs(86_400)).unwrap_err().to_string();
    assert!(error.ends_with("run kinit"), "{error}");

    let with = |user: &str, password: &str| {
        Wanted { cache: "/nowhere".into(), ..realm.wanted(host) }.with_password(user, password)
    };
    // carol's and dave's keys are of SHA-2
    for user in ["alice", "alice@LAB.EXAMPLE", "carol", "dave"] {
        let found = Credential::find(&with(user, "secret").unwrap(), now()).unwrap();
        assert_eq!(found.client.to_string(), format!("{}@LAB.EXAMPLE", user.trim_end_matches("@LAB.EXAMPLE")));
    }
    let error = Credential::find(&with("alice", "wrong").unwrap(), now()).unwrap_err().to_string();
    assert!(error.contains("the password is wrong"), "{error}");
    let error = Credential::find(&with("bob", "secret").unwrap(), now()).unwrap_err().to_string();
    assert!(error.contains("KDC_ERR_C_PRINCIPAL_UNKNOWN"), "{error}");
    let error = Credential::find(&with("alice@OTHER.EXAMPLE", "secret").unwrap(), now()).unwrap_err().to_string();
    assert!(error.starts_with("the KDC of OTHER.EXAMPLE is"), "{error}");
}

#[test]
fn a_session_is_signed_and_encrypted_with_the_key_of_the_ticket() {
    let Some(realm) = Realm::begin() else { return };
    realm.kinit();
    let (address, wire) = (peer(realm.keytab()), realm.path("wire.pcapng"));
    let mut keyring = Keyring::new();
    keyring.set_tickets(Arc::new(realm.keytab()));
    let dialects = [Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1];
    let ciphers = [CipherId::AES_128_CCM, CipherId::AES_128_GCM, CipherId::AES_256_CCM, CipherId::AES_256_GCM];
    let mut cases: Vec<(&str, Options)> = dialects
        .iter()
        .map(|dialect| ("server.lab.example", Options { dialects: vec![*dialect], ..Options::default() }))
        .collect();
    cases.extend(
        dialects
            .iter()
            .map(|d| ("server.lab.example", Options { dialects: vec![*d], encrypt: true, ..Options::default() })),
    );
    // keys of 256 bits use all of the ticket's key; keys of 128 bits use a part of it
    for host in HOSTS {
        cases.extend(
            ciphers
                .iter()
                .map(|cipher| (host, Options { encrypt: true, ciphers: vec![*cipher], ..Options::default() })),
        );
    }
    for (host, options) in cases {
        let ticket = Credential::find(&realm.wanted(host), now()).unwrap();
        let (encrypt, dialect) = (options.encrypt, options.dialects.clone());
        let mut client = client(address, options, &wire);
        client.session_setup(&Credentials::Kerberos(Box::new(ticket))).unwrap();
        assert!(client.is_signed() && client.is_encrypted() == encrypt);
        client.tree_connect(host, "share").unwrap();
        let file = client.create("big.bin", access::READ, disposition::OPEN, 0).unwrap();
        let read = client.read_rdma(file.id, 1, 200_000, rdmascope_dissector::wire::smb2::Channel::RDMA_V1).unwrap();
        assert_eq!(
            (read.data.len(), &read.data[..4]),
            (200_000, &[1, 2, 3, 4][..]),
            "{host} {dialect:?} {encrypt} {:?}",
            read.transform
        );
        assert!(read.data.iter().enumerate().all(|(n, byte)| *byte == (n + 1) as u8));
        assert_eq!((client.signatures.wrong, client.signatures.right > 0), (0, !encrypt));
        client.leave().unwrap();
        // a tap with the server's keytab sees everything, and has no findings, except that encrypted data goes inline
        // if no RDMA transform is negotiated
        let tap = analyze(&wire, PipelineOptions { keyring: keyring.clone(), ..Default::default() });
        let error = tap.said_but(&["SMBD-FRAG-COST", "SMB-PATH-INLINE"]);
        assert!(error.is_empty(), "{host} {dialect:?} {encrypt}: {error:#?}");
        let inline = tap.said_but(&["SMBD-FRAG-COST"]).iter().any(|error| error.starts_with("SMB-PATH-INLINE"));
        assert_eq!(inline, encrypt && read.transform.is_none(), "{host} {dialect:?} {encrypt} {:?}", read.transform);
        assert_eq!(tap.exchanges.iter().filter(|e| e.command == "READ").count(), 1, "{host} {dialect:?} {encrypt}");
        // without it, it cannot see encrypted messages
        let tap = analyze(&wire, PipelineOptions::default());
        assert_eq!(tap.exchanges.iter().any(|e| e.command == "READ"), !encrypt, "{host} {dialect:?}");
    }
    // a client without a ticket for this server is refused, and so is one without any
    let ticket = Credential::find(&realm.wanted("other.lab.example"), now()).unwrap();
    for who in [Credentials::Kerberos(Box::new(ticket)), Credentials::new("alice", "secret"), Credentials::Anonymous] {
        let error = client(address, Options::default(), &wire).session_setup(&who).unwrap_err();
        assert_eq!(error.status(), Some(NtStatus(0xc000_006d)), "{error}");
    }
}

#[test]
fn mit_kerberos_takes_our_token_and_we_take_its_answer() {
    let Some(realm) = Realm::begin() else { return };
    realm.kinit();
    for host in HOSTS {
        let ticket = Credential::find(&realm.wanted(host), now()).unwrap();
        let mut acceptor = realm.python(
            "a = gssapi.SecurityContext(usage='accept')\ntold(a.step(heard()))\nassert \
            a.complete\ntold(key(a))\ntold(str(a.initiator_name).encode())",
        );
        let (client, token) = Initiator::begin(&ticket, now()).unwrap();
        acceptor.tell(&token);
        let answer = acceptor.heard();
        let key = client.finish(&answer).unwrap();
        assert_eq!(realm.keytab().session_key(&token, &answer), Some(key));
        assert_eq!(Keytab::default().session_key(&token, &answer), None);
        assert_eq!(key.bytes(), acceptor.heard());
        assert_eq!(acceptor.heard(), b"alice@LAB.EXAMPLE");
        assert!(acceptor.child.wait().unwrap().success());
    }
}

#[test]
fn we_take_mit_kerberos_token_and_it_takes_our_answer() {
    let Some(realm) = Realm::begin() else { return };
    realm.kinit();
    // bare, in SPNEGO, and without mutual authentication, for which the server sends no token
    let cases = [
        ("gssapi.MechType.kerberos", "gssapi.RequirementFlag.mutual_authentication", true),
        ("gssapi.OID.from_int_seq('1.3.6.1.5.5.2')", "gssapi.RequirementFlag.mutual_authentication", true),
        ("gssapi.MechType.kerberos", "gssapi.RequirementFlag.integrity", false),
    ];
    for (host, (mechanism, flags, answered)) in HOSTS.into_iter().flat_map(|host| cases.map(|case| (host, case))) {
        let mut initiator = realm.python(&format!(
            "n = gssapi.Name('cifs@{host}', gssapi.NameType.hostbased_service)\n\
             c = gssapi.SecurityContext(name=n, usage='initiate', mech={mechanism}, flags={flags})\n\
             told(c.step())\nanswer = heard()\nanswer and c.step(answer)\nassert c.complete\ntold(key(c))"
        ));
        let shown = initiator.heard();
        let accepted = realm.keytab().accept(&shown, now()).unwrap().unwrap();
        // an observer with the server's key knows it too
        assert_eq!(realm.keytab().session_key(&shown, &accepted.token), Some(accepted.key));
        assert_eq!(
            (accepted.client.to_string(), !accepted.token.is_empty()),
            ("alice@LAB.EXAMPLE".to_owned(), answered)
        );
        initiator.tell(&accepted.token);
        assert_eq!(initiator.heard(), accepted.key.bytes());
        assert!(initiator.child.wait().unwrap().success());
    }
}
