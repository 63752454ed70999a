//! Frames out of an interface, at a set rate: for benchmarks and tests of capturing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{interface, packet};

/// Frames handed over in one call.
const BATCH: usize = 64;

/// A packet socket to send through.
pub struct Sender {
    fd: OwnedFd,
}

impl Sender {
    /// Opens the interface.
    pub fn open(name: &str) -> io::Result<Sender> {
        let facts =
            interface::facts(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such interface"))?;
        let fd = packet::socket(libc::SOCK_RAW)?;
        packet::bind(&fd, facts.index)?;
        // past the queue of the interface, which would delay and drop
        packet::set(&fd, libc::PACKET_QDISC_BYPASS, &1i32)?;
        packet::set_at(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &(8i32 << 20))?;
        Ok(Sender { fd })
    }

    /// Sends these frames; returns how many the kernel took.
    pub fn send(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let mut vectors: Vec<libc::iovec> = frames
            .iter()
            .take(BATCH)
            .map(|f| libc::iovec { iov_base: f.as_ptr().cast_mut().cast(), iov_len: f.len() })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: pointers and numbers, for which all zeros are a value.
                #[allow(unsafe_code)]
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = vector;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        // SAFETY: as many messages as there are, whose vectors and bytes live until the call returns; the bytes are
        // only read.
        #[allow(unsafe_code)]
        let sent = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, 0) };
        if sent >= 0 {
            return Ok(sent as usize);
        }
        match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => Ok(0),
            e => Err(e),
        }
    }

    /// Sends these frames repeatedly for a time, `per_second` frames a second (0: as fast as possible). `change` may
    /// alter a frame before it is sent: it gets the round and the place. Returns the number of frames sent.
    pub fn replay(
        &self,
        frames: &mut [Vec<u8>],
        per_second: f64,
        time: Duration,
        mut change: impl FnMut(u64, usize, &mut Vec<u8>),
    ) -> io::Result<u64> {
        let begun = Instant::now();
        let (mut sent, mut at, mut round) = (0u64, 0usize, 0u64);
        loop {
            let elapsed = begun.elapsed();
            if elapsed >= time || frames.is_empty() {
                return Ok(sent);
            }
            let due = if per_second > 0.0 { (elapsed.as_secs_f64() * per_second) as u64 } else { sent + BATCH as u64 };
            if due <= sent {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let count = ((due - sent) as usize).min(BATCH).min(frames.len() - at);
            for (place, frame) in frames.iter_mut().enumerate().skip(at).take(count) {
                change(round, place, frame);
            }
            let batch: Vec<&[u8]> = frames[at..at + count].iter().map(Vec::as_slice).collect();
            let mut done = 0;
            while done < batch.len() {
                done += self.send(&batch[done..])?;
            }
            sent += count as u64;
            at += count;
            if at == frames.len() {
                at = 0;
                round += 1;
            }
        }
    }
}
