//! Our SMB2_RDMA_TRANSFORM, \[MS-SMB2\] 2.2.43: RDMA data, encrypted or signed with the keys of the session, and the
//! structure that describes this. A WRITE has the structure in its channel information, before the buffer descriptors;
//! a READ reply has it in place of data.
//!
//! Nothing is authenticated besides the data. A nonce is never used twice under one key: those of encryption are
//! counted together with those of encrypted messages, and those of AES-GMAC have a bit set that those of messages
//! ([`Signer`] makes them of the message id) never have.

use rdmascope_analyzer::keys::SigningAlgorithm;
use rdmascope_analyzer::keys::cipher::Cipher;
use rdmascope_analyzer::keys::sign::Signer;
use rdmascope_dissector::wire::smb2::negotiate::RdmaTransformId;
use rdmascope_dissector::wire::smb2::rdma_channel::{
    Channel, CryptoTransformFixed, RdmaTransform, RdmaTransformFixed, TransformType,
};

/// Bytes of a signature and of an authentication tag.
const SIGNATURE: usize = 16;
/// In the last four bytes of a nonce of AES-GMAC: made for data, not for a message.
const OF_DATA: u32 = 0x8000_0000;

/// One SMB2_RDMA_CRYPTO_TRANSFORM, 2.2.43.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crypto {
    /// Type of the transform; any number is possible, as a probe may send it.
    pub kind: TransformType,
    /// Of the data in memory: an authentication tag, or a signature.
    pub signature: Vec<u8>,
    /// Of the cipher or of AES-GMAC; AES-CMAC has none.
    pub nonce: Vec<u8>,
}

impl Crypto {
    /// Encrypts `data` in place. `counter` must not have been used with this key. `None` if there is too much data for
    /// the cipher.
    pub fn seal(cipher: &Cipher, counter: u64, data: &mut [u8]) -> Option<Self> {
        let mut nonce = vec![0; cipher.nonce_len()];
        nonce[..8].copy_from_slice(&counter.to_le_bytes());
        let signature = cipher.seal(&nonce, &[], data)?.to_vec();
        Some(Self { kind: TransformType::ENCRYPTION, signature, nonce })
    }

    /// Signs `data`. `counter` must not have been used by this end with this key.
    pub fn sign(signer: &Signer, counter: u64, server: bool, data: &[u8]) -> Option<Self> {
        let mut nonce = Vec::new();
        if signer.algorithm() == SigningAlgorithm::AES_GMAC {
            nonce.extend_from_slice(&counter.to_le_bytes());
            nonce.extend_from_slice(&(OF_DATA | u32::from(server)).to_le_bytes());
        }
        let signature = signer.signature_of_data(data, &nonce)?.to_vec();
        Some(Self { kind: TransformType::SIGNING, signature, nonce })
    }

    /// Undoes it: decrypts `data` in place, or verifies its signature. False if it is not authentic.
    pub fn open(&self, cipher: Option<&Cipher>, signer: Option<&Signer>, data: &mut [u8]) -> bool {
        match self.kind {
            TransformType::ENCRYPTION => {
                let Some(signature) = self.signature.first_chunk::<SIGNATURE>() else { return false };
                cipher.is_some_and(|c| self.nonce.len() == c.nonce_len() && c.open(&self.nonce, &[], data, signature))
            }
            TransformType::SIGNING => signer
                .and_then(|s| s.signature_of_data(data, &self.nonce))
                .is_some_and(|own| own[..] == self.signature[..]),
            _ => false,
        }
    }

    /// The transform that a session must have negotiated for it.
    pub fn needs(&self) -> RdmaTransformId {
        RdmaTransformId(self.kind.0)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        CryptoTransformFixed {
            transform_type: self.kind.0,
            signature_length: self.signature.len() as u16,
            nonce_length: self.nonce.len() as u16,
            reserved: 0,
        }
        .emit(out);
        out.extend_from_slice(&self.signature);
        out.extend_from_slice(&self.nonce);
    }
}

/// The structure with its transforms, and after them, at a multiple of 8, the descriptors, if any.
pub fn emit(channel: Channel, transforms: &[Crypto], descriptors: &[u8]) -> Vec<u8> {
    let mut behind = Vec::new();
    for transform in transforms {
        transform.emit(&mut behind);
        behind.resize(behind.len().next_multiple_of(8), 0);
    }
    let mut out = Vec::new();
    RdmaTransformFixed {
        descriptor_offset: if descriptors.is_empty() { 0 } else { (RdmaTransformFixed::LEN + behind.len()) as u16 },
        descriptor_length: descriptors.len() as u16,
        channel: channel.0,
        transform_count: transforms.len() as u16,
        reserved1: 0,
        reserved2: 0,
    }
    .emit(&mut out);
    out.extend_from_slice(&behind);
    out.extend_from_slice(descriptors);
    out
}

/// The only transform of a structure. `None` if there is not exactly one, if its lengths do not fit its type (`nonce`:
/// the length that the negotiated cipher needs), or if the descriptors do not begin at the first multiple of 8 behind
/// it (\[MS-SMB2\] 3.3.5.12, 3.3.5.13).
pub fn only(transform: &RdmaTransform<'_>, nonce: usize) -> Option<Crypto> {
    let mut all = transform.transforms();
    let (found, more) = (all.next()?, all.next());
    if transform.fixed.transform_count != 1 || more.is_some() || found.signature.len() > SIGNATURE {
        return None;
    }
    let kind = TransformType(found.fixed.transform_type);
    if kind == TransformType::ENCRYPTION && found.nonce.len() != nonce {
        return None;
    }
    let end = RdmaTransformFixed::LEN + CryptoTransformFixed::LEN + found.signature.len() + found.nonce.len();
    if transform.descriptors.length > 0 && transform.descriptors.offset as usize != end.next_multiple_of(8) {
        return None;
    }
    Some(Crypto { kind, signature: found.signature.to_vec(), nonce: found.nonce.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_analyzer::keys::{CipherId, Key};

    #[test]
    fn what_one_end_makes_the_other_undoes() {
        for id in CipherId::ALL {
            let cipher = Cipher::new(id, &Key::of_slice(&vec![7; id.key_len()])).unwrap();
            let mut data = vec![0x55; 1000];
            let crypto = Crypto::seal(&cipher, 9, &mut data).unwrap();
            assert!(data[..16] != [0x55; 16]);
            let bytes = emit(Channel::RDMA_V1, core::slice::from_ref(&crypto), &[1; 16]);
            let (_, parsed) = RdmaTransform::parse(&bytes).unwrap();
            let only = only(&parsed, id.nonce_len()).unwrap();
            assert_eq!((&only, parsed.descriptors.bytes), (&crypto, &[1; 16][..]));
            let mut spoiled = data.clone();
            spoiled[3] ^= 1;
            assert!(!only.open(Some(&cipher), None, &mut spoiled));
            assert!(only.open(Some(&cipher), None, &mut data) && data == [0x55; 1000]);
            assert_eq!(super::only(&parsed, id.nonce_len() + 1), None);
        }
        for algorithm in [SigningAlgorithm::AES_CMAC, SigningAlgorithm::AES_GMAC] {
            let signer = Signer::new(algorithm, &Key::of([3; 16])).unwrap();
            let mut data = vec![0x66; 1000];
            let crypto = Crypto::sign(&signer, 1, false, &data).unwrap();
            assert_ne!(Crypto::sign(&signer, 1, true, &data).map(|c| c.nonce), Some(vec![0; 12]));
            let bytes = emit(Channel::NONE, core::slice::from_ref(&crypto), &[]);
            // as Microsoft's suite expects of a reply
            assert_eq!(bytes.len(), if algorithm == SigningAlgorithm::AES_GMAC { 56 } else { 40 });
            let (_, parsed) = RdmaTransform::parse(&bytes).unwrap();
            let only = only(&parsed, 12).unwrap();
            assert!(only.open(None, Some(&signer), &mut data));
            data[999] = 0;
            assert!(!only.open(None, Some(&signer), &mut data) && !only.open(None, None, &mut data));
        }
    }

    #[test]
    fn two_transforms_and_none_are_refused() {
        let one = Crypto { kind: TransformType::ENCRYPTION, signature: vec![0; 16], nonce: vec![0; 11] };
        let of = |all: &[Crypto]| {
            let bytes = emit(Channel::RDMA_V1, all, &[1; 16]);
            only(&RdmaTransform::parse(&bytes).unwrap().1, 11)
        };
        assert_eq!((of(&[]), of(&[one.clone(), one.clone()])), (None, None));
        assert_eq!(of(core::slice::from_ref(&one)), Some(one));
    }
}
