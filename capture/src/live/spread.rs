//! Which of the sockets of an interface gets a frame: chosen by its two hosts, so that one socket has both directions of
//! all that they say to each other. The flows of the kernel's own choice would not do: RoCEv2 has a UDP source port of
//! its own in each direction.
//!
//! Spec: packet(7), `PACKET_FANOUT_CBPF`; Linux `Documentation/networking/filter.rst`.

use super::filter::{AD_PROTOCOL, Instruction, JEQ, LD_W_ABS, MUL_K, NET, RET, RET_A, RSH_K, TAX, XOR_X};

/// 2³² by the golden ratio: neighbouring addresses get numbers that are far apart.
const FAR_APART: u32 = 0x9e37_79b9;

/// The program. The kernel divides its result by the number of sockets and takes the remainder. A frame that is neither IPv4 nor IPv6, or too short, goes to the first socket.
pub(super) fn by_hosts() -> Vec<Instruction> {
    let step = |code, k| Instruction { code, jt: 0, jf: 0, k };
    // the words of both addresses, all of them combined
    let words = |from: u32, n: u32| {
        let more = (1..n).flat_map(move |n| [step(TAX, 0), step(LD_W_ABS, NET + from + 4 * n), step(XOR_X, 0)]);
        std::iter::once(step(LD_W_ABS, NET + from)).chain(more)
    };
    let end = [step(MUL_K, FAR_APART), step(RSH_K, 16), step(RET_A, 0)];
    let ipv4: Vec<Instruction> = words(12, 2).chain(end).collect();
    let ipv6: Vec<Instruction> = words(8, 8).chain(end).collect();
    let mut all = vec![
        step(LD_W_ABS, AD_PROTOCOL),
        Instruction { code: JEQ, jt: 2, jf: 0, k: 0x0800 },
        Instruction { code: JEQ, jt: 1 + ipv4.len() as u8, jf: 0, k: 0x86dd },
        step(RET, 0),
    ];
    all.extend(ipv4);
    all.extend(ipv6);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::filter::run;

    /// The number that a packet gets, of this ethertype.
    fn number(ethertype: u32, packet: &[u8]) -> u32 {
        run(&by_hosts(), &[], |at| {
            if at == AD_PROTOCOL {
                return ethertype;
            }
            let at = (at - NET) as usize;
            packet.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
        })
    }

    fn ipv4(from: [u8; 4], to: [u8; 4]) -> u32 {
        number(0x0800, &[&[0x45, 0, 0, 40, 0, 9, 0, 0, 64, 17, 0, 0][..], &from, &to].concat())
    }

    #[test]
    fn both_directions_of_two_hosts_have_one_socket() {
        assert_eq!(ipv4([10, 0, 0, 1], [10, 0, 9, 2]), ipv4([10, 0, 9, 2], [10, 0, 0, 1]));
        let host = |n: u8| [&[0xfe, 0x80][..], &[0; 13], &[n]].concat();
        let ipv6 =
            |from: u8, to: u8| number(0x86dd, &[&[0x60, 0, 0, 0, 0, 0, 17, 64][..], &host(from), &host(to)].concat());
        assert_eq!(ipv6(1, 7), ipv6(7, 1));
        assert_ne!(ipv6(1, 7), ipv6(1, 8));
        assert_eq!(number(0x8808, &[0; 60]), 0, "a pause");
    }

    #[test]
    fn clients_of_one_server_are_spread() {
        for sockets in [2, 3, 4, 8, 16] {
            let mut counts = vec![0; sockets as usize];
            for client in 1..=240 {
                counts[(ipv4([10, 1, 2, client], [10, 1, 2, 250]) % sockets) as usize] += 1;
            }
            let most = counts.iter().max().copied().unwrap_or_default();
            assert!(most * sockets <= 240 * 3 / 2, "{sockets}: {counts:?}");
        }
    }
}
