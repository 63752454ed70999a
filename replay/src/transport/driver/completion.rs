//! An adapter that moves the bytes itself: all that is left is to wait for its completions.

use crate::transport::{Clock, Driver, Transport};
use std::io;
use std::time::{Duration, Instant};

/// Maximum time to send the last messages.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Waits on the completion channel of the transport.
#[derive(Debug, Default)]
pub struct CompletionChannel;

impl Driver for CompletionChannel {
    fn drive(&mut self, _clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        let Some(completions) = transport.completions() else { return Ok(false) };
        if completions.progress()? {
            return Ok(true);
        }
        // completions are announced in the wait
        completions.wait(Duration::ZERO)?;
        completions.progress()
    }

    fn wait(&mut self, transport: &mut dyn Transport, at_most: Duration) -> io::Result<()> {
        transport.completions().map_or(Ok(()), |completions| completions.wait(at_most))
    }

    fn flush(&mut self, _clock: &Clock, transport: &mut dyn Transport) {
        transport.close();
        let Some(completions) = transport.completions() else { return };
        let until = Instant::now() + FLUSH_WITHIN;
        while completions.is_busy() && Instant::now() < until {
            if !completions.progress().unwrap_or(false) && completions.wait(Duration::from_millis(10)).is_err() {
                break;
            }
        }
    }

    fn half_close(&mut self, _clock: &Clock, transport: &mut dyn Transport) -> io::Result<()> {
        transport.close();
        Ok(())
    }
}
