//! Replays the frames of a capture out of an interface, over and over: send INTERFACE FILE[,FILE…] PER_SECOND SECONDS [ROUNDS_PER_ADDRESS]
//!
//! For benchmarks of capturing, in a network namespace: it needs CAP_NET_RAW. With ROUNDS_PER_ADDRESS other than 0, the
//! client's and the server's IPv4 addresses change after this number of rounds through the file, so that connections
//! come and go (frames then have a wrong invariant CRC and wrong IP checksums; capture with --no-crc). Each of several
//! files has a thread of its own, and they share the rate. Prints the number of frames sent.

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
