//! SPNEGO, RFC 4178 and \[MS-SPNG\], and the GSS-API token around it, RFC 2743 3.1: how client and server find a
//! mechanism of authentication, and what carries its tokens. A server or client may as well send NTLMSSP or Kerberos
//! without it.
//!
//! ```text
//! first     60 { OID, a0 { 30 { a0 mechTypes, a1 reqFlags, a2 mechToken, a3 negHints or mechListMIC, a4 mechListMIC } } }
//! later     a1 { 30 { a0 negState, a1 supportedMech, a2 responseToken, a3 mechListMIC } }
//! ```

use super::ber::{self, Element, Oid};
use super::ntlmssp;
use crate::fault::{Fault, PResult};
use crate::field::Def;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};
use alloc::vec::Vec;

const SPNEGO: &[u8] = &[0x2b, 6, 1, 5, 5, 2];
/// The contents of Kerberos' object identifier, RFC 4120.
pub const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
/// Windows 2000 wrote it by mistake, and clients have offered it ever since.
pub const KERBEROS_MICROSOFT: &[u8] = &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2];
/// The contents of NTLMSSP's object identifier, \[MS-NLMP\] 1.9.
pub const NTLMSSP: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a];
const MECHANISMS: &[(&[u8], &str)] = &[
    (SPNEGO, "SPNEGO"),
    (KERBEROS, "KRB5 - Kerberos 5"),
    (KERBEROS_MICROSOFT, "MS KRB5 - Microsoft Kerberos 5"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 3], "KRB5 - Kerberos 5 - User to User"),
    (NTLMSSP, "NTLMSSP - Microsoft NTLM Security Support Provider"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x1e], "NEGOEX - SPNEGO Extended Negotiation Security Mechanism"),
    (&[0x2b, 6, 1, 5, 2, 5], "IAKERB"),
    (&[0x2b, 5, 1, 5, 2], "Kerberos 5 (RFC 1510)"),
];

const NEG_STATES: crate::field::Values =
    &[(0, "accept-completed"), (1, "accept-incomplete"), (2, "reject"), (3, "request-mic")];
const KRB5_TOKENS: crate::field::Values = &[
    (0x0001, "KRB5_AP_REQ"),
    (0x0002, "KRB5_AP_REP"),
    (0x0003, "KRB5_ERROR"),
    (0x0004, "KRB_TOKEN_TGT_REQ"),
    (0x0101, "KRB5_GSS_GetMIC"),
    (0x0104, "KRB_TOKEN_TGT_REP"),
];

fields! {
    /// The fields of SPNEGO and of the GSS-API token.
    pub mod f ["RFC 4178 4.2"] {
        GSS_API: Protocol = "gss-api", "GSS-API Generic Security Service Application Program Interface";
        OID: Str as Keep = "gss-api.OID", "OID";
        PROTOCOL: Protocol = "spnego", "Simple Protected Negotiation";
        INIT: None = "spnego.negTokenInit_element", "negTokenInit";
        TARG: None = "spnego.negTokenTarg_element", "negTokenTarg";
        MECH_TYPES: U32 = "spnego.mechTypes", "mechTypes", dec;
        MECH_TYPE: Str as Keep = "spnego.MechType", "MechType";
        REQ_FLAGS: Bytes as Keep = "spnego.reqFlags", "reqFlags";
        MECH_TOKEN: Bytes as Ber = "spnego.mechToken", "mechToken";
        MECH_LIST_MIC: Bytes as Secret = "spnego.mechListMIC", "mechListMIC";
        HINTS: None = "spnego.negHints_element", "negHints";
        HINT_NAME: Str = "spnego.hintName", "hintName";
        HINT_ADDRESS: Bytes = "spnego.hintAddress", "hintAddress";
        NEG_RESULT: U32 = "spnego.negResult", "negResult", dec, values NEG_STATES;
        SUPPORTED_MECH: Str as Keep = "spnego.supportedMech", "supportedMech";
        RESPONSE_TOKEN: Bytes as Ber = "spnego.responseToken", "responseToken";
        KRB5_BLOB: Bytes as Secret = "spnego.krb5.blob", "krb5_blob";
        KRB5_OID: Str as Keep = "spnego.krb5_oid", "KRB5 OID";
        KRB5_TOKEN: U16 = "spnego.krb5.tok_id", "krb5_tok_id", hex, values KRB5_TOKENS;
        OTHER: Bytes = "rdmascope.spnego.unknown", "Unknown";
    }
}

/// The token of the mechanism inside of a security blob: out of SPNEGO's wrapping, or the blob itself where it has
/// none.
pub fn mechanism_token(blob: &[u8]) -> Option<&[u8]> {
    if blob.starts_with(ntlmssp::SIGNATURE) {
        return Some(blob);
    }
    let outer = ber::element(blob)?;
    let (inner, token) = match outer.tag {
        ber::APPLICATION_0 => {
            let oid = ber::element(outer.contents).filter(|e| e.tag == ber::OID)?;
            if oid.contents != SPNEGO {
                return Some(blob);
            }
            (ber::contents(oid.rest, ber::context(0))?, 2)
        }
        tag if tag == ber::context(0) => (outer.contents, 2),
        tag if tag == ber::context(1) => (outer.contents, 2),
        _ => return None,
    };
    let mut i = ber::contents(inner, ber::SEQUENCE)?;
    while let Some(e) = ber::element(i) {
        if e.tag == ber::context(token) {
            return ber::contents(e.contents, ber::OCTET_STRING);
        }
        i = e.rest;
    }
    None
}

/// A Kerberos token in a security blob, RFC 4121 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KerberosToken<'a> {
    /// The mechanism, of those that SPNEGO offers, that it is for: the contents of its object identifier. `None` where
    /// SPNEGO offers none (a reply), or is not there.
    pub mechanism: Option<&'a [u8]>,
    /// Type of the token: 1 KRB_AP_REQ, 2 KRB_AP_REP, 3 KRB_ERROR.
    pub id: u16,
    /// The Kerberos message, in DER.
    pub message: &'a [u8],
}

/// The Kerberos token of a security blob, in SPNEGO or without it.
pub fn kerberos_token(blob: &[u8]) -> Option<KerberosToken<'_>> {
    let oid = ber::element(ber::contents(mechanism_token(blob)?, ber::APPLICATION_0)?)?;
    if oid.tag != ber::OID || !is_kerberos(oid.contents) {
        return None;
    }
    let (id, message) = oid.rest.split_first_chunk()?;
    Some(KerberosToken { mechanism: mechanisms(blob).find(|m| is_kerberos(m)), id: u16::from_le_bytes(*id), message })
}

fn is_kerberos(mechanism: &[u8]) -> bool {
    mechanism == KERBEROS || mechanism == KERBEROS_MICROSOFT
}

/// The mechanisms that a NegTokenInit offers: the contents of their object identifiers, in order of preference.
pub fn mechanisms(blob: &[u8]) -> impl Iterator<Item = &[u8]> {
    let list = || {
        let oid = ber::element(ber::contents(blob, ber::APPLICATION_0)?)
            .filter(|e| e.tag == ber::OID && e.contents == SPNEGO)?;
        let first = ber::contents(ber::contents(oid.rest, ber::context(0))?, ber::SEQUENCE)?;
        ber::contents(ber::contents(first, ber::context(0))?, ber::SEQUENCE)
    };
    let mut i = list().unwrap_or_default();
    core::iter::from_fn(move || {
        let oid = ber::element(i)?;
        i = oid.rest;
        Some(oid.contents)
    })
}

/// A NegTokenInit that offers these mechanisms (contents of object identifiers), with the first one's token where there
/// is one.
pub fn emit_init(mechanisms: &[&[u8]], token: Option<&[u8]>) -> Vec<u8> {
    let oids: Vec<Vec<u8>> = mechanisms.iter().map(|m| ber::emit(ber::OID, &[m])).collect();
    let oids: Vec<&[u8]> = oids.iter().map(Vec::as_slice).collect();
    let list = ber::emit(ber::context(0), &[&ber::emit(ber::SEQUENCE, &oids)]);
    let token = token.map_or_else(Vec::new, |t| ber::emit(ber::context(2), &[&ber::emit(ber::OCTET_STRING, &[t])]));
    let init = ber::emit(ber::context(0), &[&ber::emit(ber::SEQUENCE, &[&list, &token])]);
    ber::emit(ber::APPLICATION_0, &[&ber::emit(ber::OID, &[SPNEGO]), &init])
}

/// State of the negotiation in a NegTokenResp (negState, RFC 4178 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NegState {
    /// Authentication is complete.
    AcceptCompleted = 0,
    /// accept-incomplete: more tokens follow.
    AcceptIncomplete = 1,
}

/// A NegTokenResp. A server sends its state, and in its first one the mechanism that it chose (contents of an object
/// identifier).
pub fn emit_response(state: Option<NegState>, mechanism: Option<&[u8]>, token: Option<&[u8]>) -> Vec<u8> {
    let state =
        state.map_or_else(Vec::new, |s| ber::emit(ber::context(0), &[&ber::emit(ber::ENUMERATED, &[&[s as u8]])]));
    let mechanism = mechanism.map_or_else(Vec::new, |m| ber::emit(ber::context(1), &[&ber::emit(ber::OID, &[m])]));
    let token = token.map_or_else(Vec::new, |t| ber::emit(ber::context(2), &[&ber::emit(ber::OCTET_STRING, &[t])]));
    ber::emit(ber::context(1), &[&ber::emit(ber::SEQUENCE, &[&state, &mechanism, &token])])
}

/// A token of a mechanism as GSS-API frames it, RFC 2743 3.1: what [`kerberos_token`] reads. `id` is little-endian.
pub fn emit_gss_token(mechanism: &[u8], id: u16, message: &[u8]) -> Vec<u8> {
    ber::emit(ber::APPLICATION_0, &[&ber::emit(ber::OID, &[mechanism]), &id.to_le_bytes(), message])
}

/// Decodes a security blob, reported as the field `def`; called by [`crate::fuzzing`].
#[doc(hidden)]
pub fn parse_blob<T: Trace>(def: Def, blob: &[u8], t: &mut T) -> Option<usize> {
    security_blob(def, blob, t);
    let _ = (kerberos_token(blob), mechanisms(blob).count());
    mechanism_token(blob).and_then(ntlmssp::Message::parse).map(|m| alloc::format!("{m}").len())
}

/// Reports the security blob `bytes` of a NEGOTIATE or SESSION_SETUP as field `def`, and its content below.
pub(super) fn security_blob<T: Trace>(def: Def, bytes: &[u8], t: &mut T) {
    if !T::ON || bytes.is_empty() {
        return;
    }
    t.field(def, bytes, bytes.len(), Value::Bytes(bytes));
    t.down();
    // a fault was reported where it happened; the message goes on behind the blob
    let _ = token(bytes, t);
    t.up();
}

fn token<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    match i.first() {
        _ if i.starts_with(ntlmssp::SIGNATURE) => ntlmssp::message(i, t),
        Some(&ber::APPLICATION_0) => scope(f::GSS_API, i, t, gss_token),
        Some(tag) if *tag == ber::context(0) || *tag == ber::context(1) => {
            scope(f::GSS_API, i, t, |i, t| scope(f::PROTOCOL, i, t, neg_token))
        }
        _ => Ok((i, ())),
    }
}

fn gss_token<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let element = tagged(i, ber::APPLICATION_0, f::OID)?;
    let oid = tagged(element.contents, ber::OID, f::OID)?;
    oid_field(f::OID, oid.contents, t);
    if oid.contents == SPNEGO {
        scope(f::PROTOCOL, oid.rest, t, neg_token)?;
    } else if is_kerberos(oid.contents) {
        kerberos(oid.rest, t)?;
    } else if oid.rest.starts_with(ntlmssp::SIGNATURE) {
        ntlmssp::message(oid.rest, t)?;
    } else if !oid.rest.is_empty() {
        t.field(f::OTHER, oid.rest, oid.rest.len(), Value::Bytes(oid.rest));
    }
    Ok((element.rest, ()))
}

fn neg_token<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let Some(choice) = ber::element(i) else { return Fault::short(Some(f::INIT), i, 2).fail() };
    let def = match choice.tag {
        tag if tag == ber::context(0) => f::INIT,
        tag if tag == ber::context(1) => f::TARG,
        _ => return Fault::value(f::INIT, i).fail(),
    };
    scope(def, i, t, |_, t| {
        let mut i = tagged(choice.contents, ber::SEQUENCE, def)?.contents;
        while !i.is_empty() {
            let Some(e) = ber::element(i) else { return Fault::short(Some(def), i, 2).fail() };
            member(def, e, i, t)?;
            i = e.rest;
        }
        Ok((choice.rest, ()))
    })
}

fn member<'a, T: Trace>(of: Def, e: Element<'a>, at: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let init = of == f::INIT;
    let number = e.tag.wrapping_sub(ber::context(0));
    match (init, number) {
        (true, 0) => {
            let list = tagged(e.contents, ber::SEQUENCE, f::MECH_TYPES)?.contents;
            let mut count = 0u64;
            let mut i = list;
            while let Some(oid) = ber::element(i) {
                (count, i) = (count + 1, oid.rest);
            }
            t.field(f::MECH_TYPES, at, at.len() - e.rest.len(), Value::U(count));
            t.down();
            let mut i = list;
            while let Some(oid) = ber::element(i) {
                oid_field(f::MECH_TYPE, oid.contents, t);
                i = oid.rest;
            }
            t.up();
        }
        (true, 1) => octets(f::REQ_FLAGS, e.contents, t),
        (true, 2) => mechanism(f::MECH_TOKEN, e.contents, t)?,
        (true, 3) if e.contents.first() == Some(&ber::SEQUENCE) => {
            scope(f::HINTS, at, t, |_, t| {
                let mut i = tagged(e.contents, ber::SEQUENCE, f::HINTS)?.contents;
                while let Some(hint) = ber::element(i) {
                    match hint.tag {
                        tag if tag == ber::context(0) => {
                            let name = tagged(hint.contents, ber::GENERAL_STRING, f::HINT_NAME)?.contents;
                            t.field(f::HINT_NAME, name, name.len(), Value::Bytes(name));
                        }
                        _ => octets(f::HINT_ADDRESS, hint.contents, t),
                    }
                    i = hint.rest;
                }
                Ok((e.rest, ()))
            })?;
        }
        (true, 3 | 4) | (false, 3) => octets(f::MECH_LIST_MIC, e.contents, t),
        (false, 0) => {
            let state = tagged(e.contents, ber::ENUMERATED, f::NEG_RESULT)?.contents;
            if let [state] = state {
                t.field(f::NEG_RESULT, &e.contents[e.contents.len() - 1..], 1, Value::U((*state).into()));
            }
        }
        (false, 1) => oid_field(f::SUPPORTED_MECH, tagged(e.contents, ber::OID, f::SUPPORTED_MECH)?.contents, t),
        (false, 2) => mechanism(f::RESPONSE_TOKEN, e.contents, t)?,
        _ => octets(f::OTHER, e.contents, t),
    }
    Ok((e.rest, ()))
}

fn mechanism<T: Trace>(def: Def, i: &[u8], t: &mut T) -> Result<(), nom::Err<Fault>> {
    let token = tagged(i, ber::OCTET_STRING, def)?.contents;
    t.field(def, token, token.len(), Value::Bytes(token));
    t.down();
    let result = match token.first() {
        _ if token.starts_with(ntlmssp::SIGNATURE) => ntlmssp::message(token, t),
        // not SPNEGO in SPNEGO: one level is all there is
        Some(&ber::APPLICATION_0) => match ber::contents(token, ber::APPLICATION_0).and_then(ber::element) {
            Some(oid) if oid.tag == ber::OID => {
                oid_field(f::KRB5_OID, oid.contents, t);
                kerberos(oid.rest, t)
            }
            _ => Ok((token, ())),
        },
        _ => Ok((token, ())),
    };
    t.up();
    result.map(|_| ())
}

/// A Kerberos token, RFC 4121 4.1: its type, and the rest undecoded.
fn kerberos<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::le16(f::KRB5_TOKEN, i, t)?;
    let (i, _) = read::bytes(f::KRB5_BLOB, i.len(), i, t)?;
    Ok((i, ()))
}

fn octets<T: Trace>(def: Def, i: &[u8], t: &mut T) {
    let bytes = ber::element(i).map_or(i, |e| e.contents);
    t.field(def, bytes, bytes.len(), Value::Bytes(bytes));
}

fn oid_field<T: Trace>(def: Def, oid: &[u8], t: &mut T) {
    t.field(def, oid, oid.len(), Value::Text(format_args!("{}", Oid(oid))));
}

/// True if the values of a field are mechanisms.
pub(crate) fn mechanism_field(def: &crate::field::FieldDef) -> bool {
    [f::OID, f::MECH_TYPE, f::SUPPORTED_MECH, f::KRB5_OID].iter().any(|d| d.id == def.id)
}

/// Name of a mechanism, by its object identifier in dotted numbers.
pub(crate) fn mechanism_name(dotted: &str) -> Option<&'static str> {
    MECHANISMS.iter().find(|(bytes, _)| alloc::format!("{}", Oid(bytes)) == dotted).map(|(_, name)| *name)
}

fn tagged(i: &[u8], tag: u8, def: Def) -> Result<Element<'_>, nom::Err<Fault>> {
    match ber::element(i) {
        Some(e) if e.tag == tag => Ok(e),
        Some(_) => Err(nom::Err::Error(Fault::value(def, i))),
        None => Err(nom::Err::Error(Fault::short(Some(def), i, 2))),
    }
}
