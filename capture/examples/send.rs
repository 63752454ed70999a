//! Replays the frames of a capture out of an interface, over and over: send INTERFACE FILE[,FILE…] PER_SECOND SECONDS
//! [ROUNDS_PER_ADDRESS]
//!
//! For benchmarks of capturing, in a network namespace: it needs CAP_NET_RAW. With ROUNDS_PER_ADDRESS other than 0, the
//! client's and the server's IPv4 addresses change after this number of rounds through the file, so that connections
//! come and go: IP checksums and invariant CRCs are those of the new addresses, checksums of TCP are not. Each of
//! several files has a thread of its own, and they share the rate. Prints the number of frames sent.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use rdmascope_capture::live::send::Sender;
    use rdmascope_capture::{OpenOptions, Source, open};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, file, per_second, seconds, rest @ ..] = &arguments[..] else {
        return Err("send INTERFACE FILE[,FILE…] PER_SECOND SECONDS [ROUNDS_PER_ADDRESS]".into());
    };
    let per_address: u64 = rest.first().map_or(Ok(0), |r| r.parse())?;
    let files: Vec<&str> = file.split(',').collect();
    let rate = per_second.parse::<f64>()? / files.len() as f64;
    let time = std::time::Duration::from_secs_f64(seconds.parse()?);
    let mut loads = Vec::new();
    for file in files {
        let mut capture = open(file, OpenOptions::new())?;
        let mut frames = Vec::new();
        while let Some(record) = capture.next()? {
            frames.push(record.bytes.to_vec());
        }
        loads.push(frames);
    }
    let begun = std::time::Instant::now();
    let senders: Vec<_> = loads
        .into_iter()
        .map(|mut frames| {
            let sender = Sender::open(interface)?;
            Ok(std::thread::spawn(move || {
                sender.replay(&mut frames, rate, time, |round, _, frame| {
                    if round > 0 && round.is_multiple_of(per_address) {
                        let number = (round / per_address) as u16;
                        renumber(frame, number ^ number.wrapping_sub(1));
                    }
                })
            }))
        })
        .collect::<std::io::Result<_>>()?;
    let mut sent = 0;
    for sender in senders {
        sent += sender.join().map_err(|_| "a sender panicked")??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("sent {sent} frames in {seconds:.3} s, {:.0} a second", sent as f64 / seconds);
    Ok(())
}

/// Changes these bits in the second and third byte of both IPv4 addresses, and corrects IP checksum and invariant CRC.
#[cfg(target_os = "linux")]
fn renumber(frame: &mut [u8], bits: u16) {
    use rdmascope_dissector::wire::ib::icrc::{Cover, invariant};
    const UDP: u8 = 17;
    let Some(ip) = frame.get_mut(14..).filter(|ip| ip.len() > 28 && ip[0] == 0x45) else { return };
    for (place, bits) in [13, 14, 17, 18].into_iter().zip(bits.to_be_bytes().into_iter().cycle()) {
        ip[place] ^= bits;
    }
    ip[10..12].fill(0);
    let sum: u32 = ip[..20].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if ip[9] == UDP && ip[22..24] == 4791_u16.to_be_bytes() && (32..=ip.len()).contains(&total) {
        ip[26..28].fill(0);
        if let Some(crc) = invariant(Cover::Ipv4, &ip[..total - 4]) {
            ip[total - 4..total].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
