//! Replays the frames of a capture out of an interface, over and over: send INTERFACE FILE PER_SECOND SECONDS [ROUNDS_PER_ADDRESS [THREADS]]
//!
//! For benchmarks of capturing, in a network namespace of one's own: it needs CAP_NET_RAW. With ROUNDS_PER_ADDRESS other than 0, the client's and
//! the server's IPv4 addresses change after so many rounds through the file, so that connections come and go (frames then have a wrong
//! invariant CRC and wrong IP checksums; capture with --no-crc). THREADS share the rate. Prints how many frames went.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use rdmascope_capture::live::send::Sender;
    use rdmascope_capture::{OpenOptions, Source, open};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, file, per_second, seconds, rest @ ..] = &arguments[..] else {
        return Err("send INTERFACE FILE PER_SECOND SECONDS [ROUNDS_PER_ADDRESS [THREADS]]".into());
    };
    let per_address: u64 = rest.first().map_or(Ok(0), |r| r.parse())?;
    let threads: u32 = rest.get(1).map_or(Ok(1), |r| r.parse())?;
    let rate = per_second.parse::<f64>()? / f64::from(threads.max(1));
    let time = std::time::Duration::from_secs_f64(seconds.parse()?);
    let mut capture = open(file, OpenOptions::new())?;
    let mut frames = Vec::new();
    while let Some(record) = capture.next()? {
        frames.push(record.bytes.to_vec());
    }
    let begun = std::time::Instant::now();
    let senders: Vec<_> = (0..threads.max(1))
        .map(|_| {
            let (sender, mut frames) = (Sender::open(interface)?, frames.clone());
            Ok(std::thread::spawn(move || {
                sender.replay(&mut frames, rate, time, |round, _, frame| {
                    if per_address > 0 && frame.len() > 34 && frame[12..14] == [8, 0] {
                        // the second and third byte of both addresses
                        let number = ((round / per_address) as u16).to_be_bytes();
                        frame[27..29].copy_from_slice(&number);
                        frame[31..33].copy_from_slice(&number);
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

#[cfg(not(target_os = "linux"))]
fn main() {}
