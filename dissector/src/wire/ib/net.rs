//! The headers that route InfiniBand packets: local (LRH) and global (GRH). IBA volume 1, 7.7 and 8.3. Big-endian.

header! {
    /// Local Route Header, first on a native link.
    pub struct Lrh [NODE: Bytes = "infiniband.lrh", "Local Route Header", "IBA Vol 1, 7.7"] {
        lane: u8 = "_", "Virtual Lane", hex, bits {
            vl: u8 & 0xf0 = "infiniband.lrh.vl", "Virtual Lane", hex;
            lver: u8 & 0x0f = "infiniband.lrh.lver", "Link Version", dec;
        };
        level: u8 = "_", "Service Level", hex, bits {
            sl: u8 & 0xf0 = "infiniband.lrh.sl", "Service Level", dec;
            reserved2: u8 & 0x0c = "infiniband.lrh.reserved2", "Reserved (2 bits)", dec;
            lnh: u8 & 0x03 = "infiniband.lrh.lnh", "Link Next Header", hex, values &[(0, "Raw"), (1, "IPv6"), (2, "BTH"), (3, "GRH")];
        };
        dlid: be16 = "infiniband.lrh.dlid", "Destination Local ID", dec;
        length: be16 = "_", "Length", hex, bits {
            reserved5: u16 & 0xf800 = "infiniband.lrh.reserved5", "Reserved (5 bits)", dec;
            pktlen: u16 & 0x07ff = "infiniband.lrh.pktlen", "Packet Length", dec;
        };
        slid: be16 = "infiniband.lrh.slid", "Source Local ID", dec;
    }
}

header! {
    /// Global Route Header: an IPv6 header by another name.
    pub struct Grh [NODE: Bytes = "infiniband.grh", "Global Route Header", "IBA Vol 1, 8.3"] {
        first: be32 = "_", "Version, class and flow", hex, bits {
            ipver: u8 & 0xf0000000 = "infiniband.grh.ipver", "IP Version", dec;
            tclass: u16 & 0x0ff00000 = "infiniband.grh.tclass", "Traffic Class", dec;
            flowlabel: u32 & 0x000fffff = "infiniband.grh.flowlabel", "Flow Label", dec;
        };
        /// Bytes after the GRH, ICRC included.
        paylen: be16 = "infiniband.grh.paylen", "Payload Length", dec;
        /// 0x1b: a BTH follows.
        nxthdr: u8 = "infiniband.grh.nxthdr", "Next Header", dec;
        hoplmt: u8 = "infiniband.grh.hoplmt", "Hop Limit", dec;
        sgid: ipv6 = "infiniband.grh.sgid", "Source GID";
        dgid: ipv6 = "infiniband.grh.dgid", "Destination GID";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Off;
    use alloc::vec::Vec;

    #[test]
    fn headers_read_back() {
        let bytes: Vec<u8> = (0x60..0x60 + 48).collect();
        let (rest, lrh) = Lrh::parse(&bytes, &mut Off).unwrap();
        let (rest, grh) = Grh::parse(rest, &mut Off).unwrap();
        assert!(rest.is_empty());
        assert_eq!((lrh.vl(), lrh.lnh(), lrh.dlid, lrh.pktlen(), lrh.slid), (6, 1, 0x6263, 0x465, 0x6667));
        assert_eq!((grh.ipver(), grh.tclass(), grh.flowlabel(), grh.paylen), (6, 0x86, 0x96a6b, 0x6c6d));
        let mut out = Vec::new();
        lrh.emit(&mut out);
        grh.emit(&mut out);
        assert_eq!(out, bytes);
    }
}
