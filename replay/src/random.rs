//! Random numbers of the system: challenges, salts, session keys.

use thiserror::Error;

/// The system provides no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the system provides no random numbers")]
pub struct Unavailable;

/// Random bytes.
///
/// # Errors
/// If the system has none.
pub fn random<const N: usize>() -> Result<[u8; N], Unavailable> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| Unavailable)?;
    Ok(bytes)
}
