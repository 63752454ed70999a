//! Requests of a client to a key distribution center, RFC 4120 3.1 and 3.3: a ticket by a password, and tickets by a
//! ticket. They go over TCP, RFC 4120 7.2.2.

use super::{
    Credential, ENCRYPTION_TYPES, EncryptionKey, Error, Principal, Result, VERSION, ap_request, decode, encode, flags,
    integer, kerberos_time, number, sequence_number, stamp, text, time_of,
};
use picky_asn1::wrapper::{
    Asn1SequenceOf, ExplicitContextTag0, ExplicitContextTag1, ExplicitContextTag2, ExplicitContextTag3,
    ExplicitContextTag4, ExplicitContextTag5, ExplicitContextTag7, ExplicitContextTag8, IntegerAsn1, OctetStringAsn1,
    Optional,
};
use picky_krb::constants::key_usages;
use picky_krb::constants::types::{AS_REQ_MSG_TYPE, TGS_REQ_MSG_TYPE};
use picky_krb::data_types::{EtypeInfo2, PaData, PaEncTsEnc};
use picky_krb::messages::{
    AsRep, AsReq, EncAsRepPart, EncKdcRepPart, EncTgsRepPart, KdcRep, KdcReq, KdcReqBody, KrbError, TgsRep, TgsReq,
};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, SystemTime};

const PORT: u16 = 88;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the longest answer that is read.
const ANSWER_MAX: u32 = 1 << 20;
/// Requested lifetime of a ticket.
const LIFETIME: Duration = Duration::from_secs(10 * 3600);
/// Forwardable no, canonicalize yes: the sixteenth bit, RFC 6806 11.
const OPTIONS: [u8; 4] = [0, 1, 0, 0];
const PREAUTHENTICATION_REQUIRED: u32 = 25;
/// Maximum number of files that krb5.conf may include.
const FILES_MAX: usize = 64;

mod padata {
    pub(super) const TGS_REQ: u8 = 1;
    pub(super) const ENC_TIMESTAMP: u8 = 2;
    pub(super) const ETYPE_INFO2: i64 = 19;
}

/// A key distribution center.
#[derive(Clone, Debug)]
pub struct Kdc {
    /// As HOST:PORT.
    address: String,
}

impl Kdc {
    /// The KDC of a realm: the one that is given, as HOST or HOST:PORT, or the first that a configuration names.
    ///
    /// # Errors
    /// If no KDC is known.
    pub fn of_realm(realm: &str, given: Option<&str>, configuration: &str) -> Result<Self> {
        let found = given.map(str::to_owned).or_else(|| find_kdc(&read_configuration(configuration), realm));
        let found = found.ok_or_else(|| Error::NoKdc { realm: realm.to_owned(), path: configuration.to_owned() })?;
        let has_port = found
            .rsplit_once(':')
            .is_some_and(|(host, port)| (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok());
        let host =
            if found.contains(':') && !has_port && !found.starts_with('[') { format!("[{found}]") } else { found };
        Ok(Self { address: if has_port { host } else { format!("{host}:{PORT}") } })
    }

    /// A ticket to get tickets with, for a user and their password.
    ///
    /// # Errors
    /// If the KDC refuses, or cannot be reached.
    pub fn initial(&self, user: &Principal, password: &str, now: SystemTime) -> Result<Credential> {
        let granter = Principal::ticket_granter(&user.realm);
        let (body, nonce) = request_body(&granter, Some(user), now)?;
        let request = |padata: Vec<PaData>| {
            let request = KdcReq {
                msg_type: ExplicitContextTag2::from(integer(AS_REQ_MSG_TYPE)),
                ..kdc_request(padata, body.clone())
            };
            encode(&AsReq::from(request))
        };
        let answer = self.ask(&request(Vec::new())?)?;
        // RFC 4120 5.2.7.5: the answer has the parameters to derive the key from the password
        let (answer, key) = match decode::<KrbError>(&answer, "") {
            Err(_) => {
                let reply: AsRep = decode(&answer, "the KDC's answer cannot be read")?;
                let key = key_of(user, password, reply.0.padata.0.as_ref().map_or(&[][..], |list| &list.0.0))?;
                (answer, key)
            }
            Ok(error) if error.0.error_code.0 == PREAUTHENTICATION_REQUIRED => {
                let methods = error.0.e_data.0.map_or_else(Vec::new, |data| data.0.0);
                let methods: Asn1SequenceOf<PaData> = decode(&methods, "the KDC names no way to prove the identity")?;
                let key = key_of(user, password, &methods.0)?;
                let (time, micros) = stamp(now);
                let proof = PaEncTsEnc {
                    patimestamp: ExplicitContextTag0::from(time),
                    pausec: Optional::from(Some(ExplicitContextTag1::from(micros))),
                };
                let proof = encode(&key.encrypt(key_usages::AS_REQ_TIMESTAMP, &encode(&proof)?)?)?;
                (self.ask(&request(vec![pa_data(padata::ENC_TIMESTAMP, proof)])?)?, key)
            }
            Ok(error) => return Err(Error::Refused { from: "the KDC", code: error.0.error_code.0 }),
        };
        let reply: AsRep = answer_of(&answer)?;
        let part = key.decrypt(key_usages::AS_REP_ENC, &reply.0.enc_part.0, "the KDC's answer")?;
        // MIT's KDC uses the right tag; others that of the other exchange, RFC 4120 5.4.2
        let part = decode::<EncAsRepPart>(&part, "")
            .map(|p| p.0)
            .or_else(|_| decode::<EncTgsRepPart>(&part, "the KDC's answer cannot be read").map(|p| p.0))?;
        credential(reply.0, part, &nonce)
    }

    /// A ticket for a server, by a ticket to get tickets with.
    ///
    /// # Errors
    /// If the KDC refuses, or cannot be reached.
    pub fn ticket(&self, granter: &Credential, server: &Principal, now: SystemTime) -> Result<Credential> {
        let (body, nonce) = request_body(server, None, now)?;
        // RFC 4120 5.2.7.1, 7.2: the ticket is sent with a checksum of the request
        let usage = key_usages::TGS_REQ_PA_DATA_AP_REQ_AUTHENTICATOR_CKSUM;
        let checksum = granter.key.checksum(usage, &encode(&body)?)?;
        let shown =
            ap_request(granter, &stamp(now), Some(checksum), None, key_usages::TGS_REQ_PA_DATA_AP_REQ_AUTHENTICATOR)?;
        let padata = vec![pa_data(padata::TGS_REQ, encode(&shown)?)];
        let request =
            KdcReq { msg_type: ExplicitContextTag2::from(integer(TGS_REQ_MSG_TYPE)), ..kdc_request(padata, body) };
        let answer = self.ask(&encode(&TgsReq::from(request))?)?;
        let reply: TgsRep = answer_of(&answer)?;
        let part = granter.key.decrypt(key_usages::TGS_REP_ENC_SESSION_KEY, &reply.0.enc_part.0, "the KDC's answer")?;
        let part: EncTgsRepPart = decode(&part, "the KDC's answer cannot be read")?;
        let found = credential(reply.0, part.0, &nonce)?;
        if !found.server.is(server) {
            return Err(Error::Message(
                "the KDC refers to another realm: get the ticket with kvno, which follows such referrals",
            ));
        }
        Ok(found)
    }

    /// One question and its answer.
    fn ask(&self, question: &[u8]) -> Result<Vec<u8>> {
        let failed = |source| Error::Kdc { address: self.address.clone(), source };
        exchange(&self.address, question).map_err(failed)
    }
}

fn exchange(address: &str, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "has no address");
    for address in address.to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => stream,
            Err(e) => {
                last = e;
                continue;
            }
        };
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(&[&(question.len() as u32).to_be_bytes(), question].concat())?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > ANSWER_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
        }
        let mut answer = Vec::new();
        stream.take(length.into()).read_to_end(&mut answer)?;
        return Ok(answer);
    }
    Err(last)
}

/// An answer that is no refusal.
fn answer_of<T: serde::de::DeserializeOwned>(answer: &[u8]) -> Result<T> {
    match decode::<KrbError>(answer, "") {
        Ok(error) => Err(Error::Refused { from: "the KDC", code: error.0.error_code.0 }),
        Err(_) => decode(answer, "the KDC's answer cannot be read"),
    }
}

/// Makes a request body, and the nonce by which the answer is recognized.
fn request_body(server: &Principal, client: Option<&Principal>, now: SystemTime) -> Result<(KdcReqBody, IntegerAsn1)> {
    let nonce = sequence_number()?;
    let body = KdcReqBody {
        kdc_options: ExplicitContextTag0::from(flags(OPTIONS)),
        cname: Optional::from(client.map(|client| client.wire_name().map(ExplicitContextTag1::from)).transpose()?),
        realm: ExplicitContextTag2::from(text(&server.realm)?),
        sname: Optional::from(Some(ExplicitContextTag3::from(server.wire_name()?))),
        from: Optional::from(None),
        till: ExplicitContextTag5::from(kerberos_time(now + LIFETIME)),
        rtime: Optional::from(None),
        nonce: ExplicitContextTag7::from(nonce.clone()),
        etype: ExplicitContextTag8::from(Asn1SequenceOf::from(ENCRYPTION_TYPES.map(integer).to_vec())),
        addresses: Optional::from(None),
        enc_authorization_data: Optional::from(None),
        additional_tickets: Optional::from(None),
    };
    Ok((body, nonce))
}

fn kdc_request(padata: Vec<PaData>, body: KdcReqBody) -> KdcReq {
    KdcReq {
        pvno: ExplicitContextTag1::from(integer(VERSION)),
        msg_type: ExplicitContextTag2::from(integer(0u8)),
        padata: Optional::from((!padata.is_empty()).then(|| ExplicitContextTag3::from(Asn1SequenceOf::from(padata)))),
        req_body: ExplicitContextTag4::from(body),
    }
}

fn pa_data(kind: u8, data: Vec<u8>) -> PaData {
    PaData {
        padata_type: ExplicitContextTag1::from(integer(kind)),
        padata_data: ExplicitContextTag2::from(OctetStringAsn1::from(data)),
    }
}

/// The key of a password, by the first encryption type of the KDC that we support. RFC 4120 4: the salt is realm and
/// name if the KDC sends none.
fn key_of(user: &Principal, password: &str, padata: &[PaData]) -> Result<EncryptionKey> {
    let salt = || format!("{}{}", user.realm, user.parts.concat());
    let info = padata.iter().find(|p| number(&p.padata_type.0) == Some(padata::ETYPE_INFO2));
    let Some(info) = info else { return EncryptionKey::of_password(ENCRYPTION_TYPES[0].into(), password, &salt()) };
    let info: EtypeInfo2 = decode(&info.padata_data.0.0, "the KDC does not say how to derive a key from a password")?;
    let spoken = |kind: i64| ENCRYPTION_TYPES.iter().any(|ours| i64::from(*ours) == kind);
    let kinds =
        info.0.iter().filter_map(|entry| number(&entry.etype.0).filter(|kind| spoken(*kind)).map(|kind| (kind, entry)));
    let Some((kind, entry)) = kinds.into_iter().next() else {
        let first = info.0.first().and_then(|entry| number(&entry.etype.0));
        return Err(Error::EncryptionType(first.unwrap_or(0)));
    };
    let salt = entry.salt.0.as_ref().map_or_else(salt, |salt| salt.0.0.to_string());
    EncryptionKey::of_password(kind, password, &salt)
}

fn credential(reply: KdcRep, part: EncKdcRepPart, nonce: &IntegerAsn1) -> Result<Credential> {
    if number(&part.nonce.0) != number(nonce) {
        return Err(Error::Message("the KDC answers another request"));
    }
    Ok(Credential {
        client: Principal::of_wire(&reply.cname.0, &reply.crealm.0),
        server: Principal::of_wire(&part.sname.0, &part.srealm.0),
        key: EncryptionKey::of_wire(&part.key.0)?,
        end: time_of(&part.end_time.0)?,
        ticket: reply.ticket.0,
    })
}

/// Parses bytes as a KDC's answer, and as its decrypted content.
pub(super) fn fuzz(bytes: &[u8]) {
    let _ = (
        answer_of::<AsRep>(bytes),
        answer_of::<TgsRep>(bytes),
        decode::<EncAsRepPart>(bytes, ""),
        decode::<EncTgsRepPart>(bytes, ""),
    );
    let _ = (decode::<Asn1SequenceOf<PaData>>(bytes, ""), decode::<EtypeInfo2>(bytes, ""));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = (find_kdc(text, "R"), default_realm(text));
    }
}

/// Reads configuration files, separated by colons as in `KRB5_CONFIG`, with the files that they include, one after the
/// other.
pub(super) fn read_configuration(paths: &str) -> String {
    let mut text = String::new();
    let mut paths: Vec<String> = paths.split(':').rev().map(str::to_owned).collect();
    let mut read = Vec::new();
    while let Some(path) = paths.pop() {
        if read.len() == FILES_MAX || read.contains(&path) {
            continue;
        }
        // a missing file is ignored
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            if let Some(file) = line.strip_prefix("include ") {
                paths.push(file.trim().to_owned());
            } else if let Some(folder) = line.strip_prefix("includedir ") {
                let files = fs::read_dir(folder.trim()).into_iter().flatten().flatten();
                paths.extend(files.filter_map(|file| file.path().to_str().map(str::to_owned)));
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
        read.push(path);
    }
    text
}

/// The first KDC of a realm in a configuration: `[realms] REALM = { kdc = HOST }`.
fn find_kdc(text: &str, realm: &str) -> Option<String> {
    let host = setting(text, "realms", Some(realm), "kdc")?.split_whitespace().next()?;
    // tcp/HOST
    Some(host.rsplit_once('/').map_or(host, |(_, host)| host).to_owned())
}

/// The realm of names that have none.
pub(super) fn default_realm(text: &str) -> Option<&str> {
    setting(text, "libdefaults", None, "default_realm")
}

/// The first value of `name` in a section, inside of braces after `group =` if there is a group.
fn setting<'t>(text: &'t str, wanted: &str, group: Option<&str>, setting: &str) -> Option<&'t str> {
    let (mut section, mut inside) = ("", None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            (section, inside) = (name.split(']').next().unwrap_or_default(), None);
        } else if line.starts_with('}') {
            inside = None;
        } else if let Some((name, value)) = line.split_once('=') {
            let (name, value) = (name.trim(), value.trim());
            if value.starts_with('{') {
                inside = Some(name);
            } else if section == wanted && inside == group && name == setting {
                return Some(value);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str = "\
# made by hand
[libdefaults]
    default_realm = LAB.EXAMPLE
    kdc_timesync = 1
[realms]
    OTHER.EXAMPLE = {
        kdc = kdc.other.example
    }
    LAB.EXAMPLE = {
        admin_server = admin.lab.example
        kdc = tcp/kdc.lab.example:8888
        kdc = second.lab.example
    }
[domain_realm]
    kdc = no.example
";

    #[test]
    fn configurations_say_where_the_kdc_is() {
        assert_eq!(find_kdc(CONFIGURATION, "LAB.EXAMPLE").as_deref(), Some("kdc.lab.example:8888"));
        assert_eq!(find_kdc(CONFIGURATION, "OTHER.EXAMPLE").as_deref(), Some("kdc.other.example"));
        assert_eq!(find_kdc(CONFIGURATION, "NO.EXAMPLE"), None);
        assert_eq!(default_realm(CONFIGURATION), Some("LAB.EXAMPLE"));
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (folder.path().join("krb5.conf"), folder.path().join("parts"));
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("lab"), CONFIGURATION).unwrap();
        // one that takes itself in is read no more often than others
        let text = format!("includedir {}\ninclude {}\n[libdefaults]\n", inner.display(), outer.display());
        fs::write(&outer, text).unwrap();
        let kdc = Kdc::of_realm("LAB.EXAMPLE", None, &format!("/nowhere:{}", outer.display())).unwrap();
        assert_eq!(kdc.address, "kdc.lab.example:8888");
    }

    #[test]
    fn addresses_have_the_port_of_kerberos_where_they_have_none() {
        for (given, address) in [
            ("kdc.example", "kdc.example:88"),
            ("kdc.example:1088", "kdc.example:1088"),
            ("192.0.2.1", "192.0.2.1:88"),
            ("2001:db8::1", "[2001:db8::1]:88"),
            ("[2001:db8::1]", "[2001:db8::1]:88"),
            ("[2001:db8::1]:1088", "[2001:db8::1]:1088"),
        ] {
            assert_eq!(Kdc::of_realm("R", Some(given), "").unwrap().address, address);
        }
        let error = Kdc::of_realm("LAB.EXAMPLE", None, "/nowhere").unwrap_err().to_string();
        assert_eq!(error, "the KDC of LAB.EXAMPLE is not known: /nowhere does not name it; give --kdc HOST");
    }
}
