//! From one session key to the keys that sign and encrypt: \[MS-SMB2\] 3.1.4.2 (NIST SP800-108 in counter mode with
//! HMAC-SHA256), and the preauthentication integrity hash that dialect 3.1.1 mixes in (3.1.4.4.1: a SHA-512 chain over
//! NEGOTIATE and SESSION_SETUP).
//!
//! ```text
//! dialect   key                 label               context
//! 2.x       signing             the session key itself
//! 3.0 3.02  signing             "SMB2AESCMAC\0"     "SmbSign\0"
//!           client to server    "SMB2AESCCM\0"      "ServerIn \0"
//!           server to client    "SMB2AESCCM\0"      "ServerOut\0"
//!           application         "SMB2APP\0"         "SmbRpc\0"
//! 3.1.1     signing             "SMBSigningKey\0"   the hash
//!           client to server    "SMBC2SCipherKey\0" the hash
//!           server to client    "SMBS2CCipherKey\0" the hash
//!           application         "SMBAppKey\0"       the hash
//! ```

use crate::keys::{CipherId, Dialect, Key};
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

/// The keys of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Signs messages of both directions.
    pub signing: Key,
    /// Encrypts messages of the client; `None` before dialect 3.0.
    pub client_to_server: Option<Key>,
    /// Encrypts messages of the server.
    pub server_to_client: Option<Key>,
    /// For the applications above SMB2.
    pub application: Option<Key>,
}

/// All keys that `dialect` derives from `session_key`, the key that authentication ended with.
///
/// A key of another length than 16 bytes is cut or filled up with zeros (Session.SessionKey), except for ciphers of 256
/// bits, which take all of it (Session.FullSessionKey). `hash` is the preauthentication hash of the session, needed for
/// 3.1.1 alone.
pub fn derive_keys(dialect: Dialect, cipher: CipherId, session_key: &[u8], hash: &PreauthHash) -> Derived {
    let mut short = [0; 16];
    let n = session_key.len().min(16);
    short[..n].copy_from_slice(&session_key[..n]);
    if dialect < Dialect::SMB_3_0 {
        return Derived { signing: Key::of(short), client_to_server: None, server_to_client: None, application: None };
    }
    let (cipher_input, cipher_len) = if cipher.key_len() == 32 { (session_key, 32) } else { (&short[..], 16) };
    let key = |input: &[u8], label: &[u8], context: &[u8], len| {
        if dialect >= Dialect::SMB_3_1_1 {
            derive(input, label, &hash.0, len)
        } else {
            derive(input, label, context, len)
        }
    };
    let (sign, to_server, to_client, app): (&[u8], &[u8], &[u8], &[u8]) = if dialect >= Dialect::SMB_3_1_1 {
        (b"SMBSigningKey\0", b"SMBC2SCipherKey\0", b"SMBS2CCipherKey\0", b"SMBAppKey\0")
    } else {
        (b"SMB2AESCMAC\0", b"SMB2AESCCM\0", b"SMB2AESCCM\0", b"SMB2APP\0")
    };
    Derived {
        signing: key(&short, sign, b"SmbSign\0", 16),
        client_to_server: Some(key(cipher_input, to_server, b"ServerIn \0", cipher_len)),
        server_to_client: Some(key(cipher_input, to_client, b"ServerOut\0", cipher_len)),
        application: Some(key(&short, app, b"SmbRpc\0", 16)),
    }
}

/// NIST SP800-108 5.1 with HMAC-SHA256, a counter of 32 bits before the fixed data and a length of 32 bits: the first
/// `len` bytes of its one block, 32 at most. Label and context are taken as given, with their NUL bytes.
pub fn derive(key: &[u8], label: &[u8], context: &[u8], len: usize) -> Key {
    let len = len.min(32);
    let mut mac = hmac_sha256(key);
    mac.update(&1_u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(context);
    mac.update(&(len as u32 * 8).to_be_bytes());
    Key::of_slice(&mac.finalize().into_bytes()[..len])
}

pub(super) fn hmac_sha256(key: &[u8]) -> Hmac<Sha256> {
    match Hmac::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    }
}

/// Hash of all messages up to authentication (Connection. and Session.PreauthIntegrityHashValue).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PreauthHash(pub [u8; 64]);

impl PreauthHash {
    /// Before the first message.
    pub const START: Self = Self([0; 64]);

    /// Adds a message: all of it, from its SMB2 header on.
    pub fn add(&mut self, message: &[u8]) {
        let mut sha = Sha512::new();
        sha.update(self.0);
        sha.update(message);
        self.0 = sha.finalize().into();
    }
}

impl Default for PreauthHash {
    fn default() -> Self {
        Self::START
    }
}

impl fmt::Debug for PreauthHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreauthHash(")?;
        self.0[..4].iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::testing::hex;

    // Microsoft's "Encryption in SMB 3.0: A protocol perspective"
    #[test]
    fn the_published_keys_of_dialect_3_0() {
        let session_key = hex("B4546771B515F766A86735532DD6C4F0");
        let keys = derive_keys(Dialect::SMB_3_0, CipherId::AES_128_CCM, &session_key, &PreauthHash::START);
        assert_eq!(keys.client_to_server.unwrap().bytes(), hex("261B72350558F2E9DCF613070383EDBF"));
        assert_eq!(keys.server_to_client.unwrap().bytes(), hex("8FE2B57EC34D2DB5B1A9727F526BBDB5"));
        assert_eq!(derive_keys(Dialect::SMB_3_0_2, CipherId::AES_128_CCM, &session_key, &PreauthHash([7; 64])), keys);
        let two = derive_keys(Dialect::SMB_2_1, CipherId(0), &session_key, &PreauthHash::START);
        assert_eq!((two.signing.bytes(), two.client_to_server), (&session_key[..], None));
    }

    // Microsoft's "SMB 3.1.1 Encryption in Windows 10"
    #[test]
    fn the_published_keys_of_dialect_3_1_1() {
        let session_key = hex("419FDDF34C1E001909D362AE7FB6AF79");
        let hash = hex("B23F3CBFD69487D9832B79B1594A367CDD950909B774C3A4C412B4FCEA9EDDDBA7DB256BA2EA30E9
                        77F11F9B113247578E0E915C6D2A513B8F2FCA5707DC8770");
        let keys = derive_keys(
            Dialect::SMB_3_1_1,
            CipherId::AES_128_GCM,
            &session_key,
            &PreauthHash(hash.try_into().unwrap()),
        );
        assert_eq!(keys.signing.bytes(), hex("8765949DFEAEE105CE9118B45BE988F0"));
        assert_eq!(keys.client_to_server.unwrap().bytes(), hex("A2F5E80E5D59103034F32E52F698E5EC"));
        assert_eq!(keys.server_to_client.unwrap().bytes(), hex("748C50868C90F302962A5C35F5F9A8BF"));
        assert_eq!(keys.application.unwrap().bytes(), hex("099D610789FBE82055B313601C3E8CC4"));
    }

    #[test]
    fn ciphers_of_256_bits_take_the_whole_session_key() {
        let (long, hash) = ([0x5a; 32], PreauthHash([9; 64]));
        let keys = derive_keys(Dialect::SMB_3_1_1, CipherId::AES_256_GCM, &long, &hash);
        let short = derive_keys(Dialect::SMB_3_1_1, CipherId::AES_128_GCM, &long, &hash);
        assert_eq!((keys.client_to_server.unwrap().bytes().len(), keys.signing), (32, short.signing));
        assert_eq!(keys.client_to_server.unwrap(), derive(&long, b"SMBC2SCipherKey\0", &hash.0, 32));
        assert_eq!(short.client_to_server.unwrap(), derive(&long[..16], b"SMBC2SCipherKey\0", &hash.0, 16));
        // the length is part of the hashed data: the long key does not begin with the short one
        assert_ne!(derive(&long, b"L\0", b"", 32).bytes()[..16], *derive(&long, b"L\0", b"", 16).bytes());
        // too short a key is filled up with zeros
        let mut padded = [0; 16];
        padded[..8].copy_from_slice(b"8 bytes!");
        let of = |key: &[u8]| derive_keys(Dialect::SMB_3_0, CipherId::AES_128_CCM, key, &hash);
        assert_eq!(of(b"8 bytes!"), of(&padded));
    }

    // Microsoft's "SMB 3.1.1 Pre-authentication integrity in Windows 10"
    #[test]
    fn the_published_preauthentication_hashes() {
        let steps = [
            (
                "FE534D4240000100000000000000800000000000000000000100000000000000FFFE000000000000
              00000000000000000000000000000000000000000000000024000500000000003F000000ECD86F32
              6276024F9F7752B89BB33F3A70000000020000000202100200030203110300000100260000000000
              010020000100FA49E6578F1F3A9F4CD3E9CC14A67AA884B3D05844E0E5A118225C15887F32FF0000
              0200060000000000020002000100",
                "DD94EFC5321BB618A2E208BA8920D2F422992526947A409B5037DE1E0FE8C7362B8C47122594CDE0
              CE26AA9DFC8BCDBDE0621957672623351A7540F1E54A0426",
            ),
            (
                "FE534D4240000100000000000000010001000000000000000100000000000000FFFE000000000000
              000000000000000000000000000000000000000000000000410001001103020039CBCAF329714942
              BDCE5D60F09AB3FB2F000000000080000000800000008000D8DAE5ADCBAED00109094AB095AED001
              80004001C00100006082013C06062B0601050502A08201303082012CA01A3018060A2B0601040182
              3702021E060A2B06010401823702020AA282010C048201084E45474F455854530100000000000000
              60000000700000007C7CC0FD06D6362D02DDE1CF343BFE292900F49750B4AA97934D9C4296B26E51
              FD370471B235E15A50DAE15BD5489C87000000000000000060000000010000000000000000000000
              5C33530DEAF90D4DB2EC4AE3786EC3084E45474F4558545303000000010000004000000098000000
              7C7CC0FD06D6362D02DDE1CF343BFE295C33530DEAF90D4DB2EC4AE3786EC3084000000058000000
              3056A05430523027802530233121301F06035504031318546F6B656E205369676E696E6720507562
              6C6963204B65793027802530233121301F06035504031318546F6B656E205369676E696E67205075
              626C6963204B6579010026000000000001002000010060A3C3B95C3C7CCD51EC536648D9B3AC74C4
              83CA5B65385A251117BEB30712E50000020004000000000001000200",
                "324BFA92A4F3A190E466EBEA08D9C110DC88BFED758D9846ECC6F541CC1D02AE3C94A79F36011E99
              7E13F841B91B50957AD07B19C8E2539C0B23FDAE09D2C513",
            ),
            (
                "FE534D4240000100000000000100800000000000000000000200000000000000FFFE000000000000
              00000000000000000000000000000000000000000000000019000001010000000000000058004A00
              0000000000000000604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA22A
              04284E544C4D5353500001000000978208E200000000000000000000000000000000060380250000
              000F",
                "AC0B0F2B9986257700365E416D142A6EDC96DF03594A19E52A15F6BD0D041CD5D432F8ED42C55E33
              197A50C9EC00F1462B50C592211B1471A04B56088FDFD5F9",
            ),
            (
                "FE534D4240000100160000C00100010001000000000000000200000000000000FFFE000000000000
              190000000010000000000000000000000000000000000000090000004800B300A181B03081ADA003
              0A0101A10C060A2B06010401823702020AA281970481944E544C4D53535000020000000C000C0038
              00000015828AE20D1D8BA31179D008000000000000000050005000440000000A0092270000000F53
              005500540033003100310002000C0053005500540033003100310001000C00530055005400330031
              00310004000C0053005500540033003100310003000C0053005500540033003100310007000800A1
              A1F5ADCBAED00100000000",
                "2729E3440DFDDD839E37193F6E8F20C20CEFB3469E453A70CD980EEC06B8835740A7376008563336
              4C8989895ECE81BF102DEEB14D4B7D48AFA76901A7A38387",
            ),
            (
                "FE534D4240000100000000000100800000000000000000000300000000000000FFFE000000000000
              1900000000100000000000000000000000000000000000001900000101000000000000005800CF01
              0000000000000000A18201CB308201C7A0030A0101A28201AA048201A64E544C4D53535000030000
              001800180090000000EE00EE00A80000000C000C00580000001A001A0064000000120012007E0000
              001000100096010000158288E2060380250000000FECAC77A5F385A8BF9C38C706EEEDDCD3530055
              005400330031003100610064006D0069006E006900730074007200610074006F0072004400520049
              0056004500520033003100310000000000000000000000000000000000000000000000000063078E
              B639FE03E20A231C3AE3BF23080101000000000000A1A1F5ADCBAED001BC4AD05F223CC90F000000
              0002000C0053005500540033003100310001000C0053005500540033003100310004000C00530055
              00540033003100310003000C0053005500540033003100310007000800A1A1F5ADCBAED001060004
              00020000000800300030000000000000000000000000300000B61FEFCAA857EA57BF1EDCEBF8974B
              8E0EBA5A6DFD9D07A31D11B548F8C9D0CC0A00100000000000000000000000000000000000090016
              0063006900660073002F005300550054003300310031000000000000000000000000003B9BDFF38F
              5EE8F9663F11A0F4C03A78A31204100100000063775A9A5FD97F0600000000",
                "0DD13628CC3ED218EF9DF9772D436D0887AB9814BFAE63A80AA845F36909DB7928622DDDAD522D97
              51640A459762C5A9D6BB084CBB3CE6BDADEF5D5BCE3C6C01",
            ),
        ];
        let mut hash = PreauthHash::START;
        for (message, expected) in steps {
            hash.add(&hex(message));
            assert_eq!(hash.0[..], hex(expected));
        }
        let keys =
            derive_keys(Dialect::SMB_3_1_1, CipherId::AES_128_GCM, &hex("270E1BA896585EEB7AF3472D3B4C75A7"), &hash);
        assert_eq!(keys.signing.bytes(), hex("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    }
}
