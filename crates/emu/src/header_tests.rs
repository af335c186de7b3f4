use proptest::prelude::*;

use super::*;

/// A TCP super-packet as read from a TUN device: a virtio header, IP, TCP with options, payload.
fn tcp(payload: usize, segment: u16, flags: u8, options: usize) -> Vec<u8> {
    let l4 = 20 + options;
    let mut packet = vec![0; VIRTIO + 20 + l4 + payload];
    packet[0] = NEEDS_CSUM;
    packet[1] = GSO_TCP4 | if flags & 0x80 != 0 { GSO_ECN } else { 0 };
    packet[2..4].copy_from_slice(&((20 + l4) as u16).to_ne_bytes());
    packet[4..6].copy_from_slice(&segment.to_ne_bytes());
    packet[6..8].copy_from_slice(&20_u16.to_ne_bytes());
    packet[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    let ip = VIRTIO;
    packet[ip] = 0x45;
    write16(&mut packet, ip + 2, (20 + l4 + payload) as u16);
    write16(&mut packet, ip + 4, 0xfffe);
    packet[ip + 8] = 64;
    packet[ip + 9] = TCP;
    packet[ip + 12..ip + 16].copy_from_slice(&[10, 77, 0, 1]);
    packet[ip + 16..ip + 20].copy_from_slice(&[10, 77, 0, 2]);
    let sum = !fold(add(0, &packet[ip..ip + 20]));
    write16(&mut packet, ip + 10, sum);
    let tcp = ip + 20;
    packet[tcp + 4..tcp + 8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
    packet[tcp + 12] = ((l4 / 4) as u8) << 4;
    packet[tcp + 13] = flags;
    let sum = fold(pseudo(&packet[ip..], (l4 + payload) as u32));
    write16(&mut packet, tcp + 16, sum);
    for (i, byte) in packet[tcp + l4..].iter_mut().enumerate() {
        *byte = (i % 251) as u8;
    }
    packet
}

/// Segments `from` to `to` of `packet` as they would be written.
fn cut(packet: &[u8], layout: &Layout, from: u32, to: u32) -> Vec<u8> {
    let mut head = [0; MAX_HEADER_BYTES];
    let len = layout.compose(packet, from, to, &mut head);
    let (a, b) = layout.offsets(from, to);
    [&head[..len], &packet[a..b]].concat()
}

fn sequence(packet: &[u8]) -> u32 {
    let at = VIRTIO + 24;
    u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
}

#[test]
fn a_whole_packet_is_written_as_it_was_read() {
    let packet = tcp(10_000, 1_448, 0x18, 12);
    let layout = Layout::of(&packet[..256], packet.len(), 0).expect("good");
    assert_eq!((layout.count, layout.headers), (7, 52));
    assert_eq!(cut(&packet, &layout, 0, 7), packet);
}

#[test]
fn a_mark_keeps_the_checksum_right() {
    for (service, ect) in [(0, false), (0xb8, false), (0xba, true), (1, true), (3, true)] {
        let mut packet = tcp(3_000, 1_000, 0x18, 0);
        packet[VIRTIO + 1] = service;
        let layout = Layout::of(&packet, packet.len(), 0).expect("good");
        assert_eq!(layout.is_ect(&packet), ect, "{service:#x}");
        let mut out = [0; MAX_HEADER_BYTES];
        let len = layout.compose(&packet, 1, 2, &mut out);
        layout.mark(&mut out[..len]);
        assert_eq!(out[VIRTIO + 1], service | CE);
        assert_eq!(fold(add(0, &out[VIRTIO..VIRTIO + 20])), 0xffff, "IP checksum");
    }
}

#[test]
fn flags_of_the_ends_stay_at_the_ends() {
    let packet = tcp(4_000, 1_000, 0x80 | 0x10 | 0x08 | 0x01, 0);
    let layout = Layout::of(&packet, packet.len(), 0).expect("good");
    let flags = |from, to| cut(&packet, &layout, from, to)[VIRTIO + 20 + 13];
    assert_eq!(flags(0, 2), 0x80 | 0x10, "CWR on the first");
    assert_eq!(flags(1, 3), 0x10);
    assert_eq!(flags(2, 4), 0x10 | 0x08 | 0x01, "PSH and FIN on the last");
    assert_eq!(cut(&packet, &layout, 1, 3)[1], GSO_TCP4, "no ECN mark without CWR");
    assert_eq!(cut(&packet, &layout, 3, 4)[1], 0, "one segment is no super-packet");
}

#[test]
fn udp_pieces_have_lengths_of_their_own() {
    let payload = 2_500;
    let mut packet = vec![0; VIRTIO + 28 + payload];
    packet[0] = NEEDS_CSUM;
    packet[1] = GSO_UDP_L4;
    packet[4..6].copy_from_slice(&1_000_u16.to_ne_bytes());
    packet[6..8].copy_from_slice(&20_u16.to_ne_bytes());
    packet[8..10].copy_from_slice(&6_u16.to_ne_bytes());
    packet[VIRTIO] = 0x45;
    write16(&mut packet, VIRTIO + 2, (28 + payload) as u16);
    packet[VIRTIO + 9] = UDP;
    let layout = Layout::of(&packet, packet.len(), 0).expect("good");
    assert_eq!(layout.count, 3);
    let last = cut(&packet, &layout, 2, 3);
    assert_eq!(read16(&last, VIRTIO + 24), 508);
    assert_eq!(read16(&last, VIRTIO + 2), 528);
    assert_eq!(last.len(), VIRTIO + 528);
}

/// The same over IPv6, where the kernel builds no options.
fn tcp6(payload: usize, segment: u16, flags: u8) -> Vec<u8> {
    let v4 = tcp(payload, segment, flags, 0);
    let mut packet = v4[..VIRTIO].to_vec();
    packet[1] = GSO_TCP6 | packet[1] & GSO_ECN;
    packet[2..4].copy_from_slice(&60_u16.to_ne_bytes());
    packet[6..8].copy_from_slice(&40_u16.to_ne_bytes());
    // Version, a traffic class of ECT(0), a flow label.
    packet.extend([0x60, 0x20, 0xbe, 0xef]);
    packet.extend((20 + payload as u16).to_be_bytes());
    packet.extend([TCP, 64]);
    packet.extend("fd00:77::1".parse::<Ipv6Addr>().expect("an address").octets());
    packet.extend("fd00:77::2".parse::<Ipv6Addr>().expect("an address").octets());
    packet.extend(&v4[VIRTIO + 20..]);
    let sum = fold(pseudo(&packet[VIRTIO..], (20 + payload) as u32));
    write16(&mut packet, VIRTIO + 40 + 16, sum);
    packet
}

/// The sum over the data that TCP's checksum covers; 0xffff is right.
fn sealed_sum6(piece: &[u8]) -> u16 {
    let mut sealed = piece.to_vec();
    seal(&mut sealed);
    let l4 = &sealed[VIRTIO + 40..];
    fold(add(pseudo(&sealed[VIRTIO..], l4.len() as u32), l4))
}

#[test]
fn pieces_over_ipv6_have_lengths_numbers_and_sums_of_their_own() {
    let packet = tcp6(4_500, 1_000, 0x18);
    let layout = Layout::of(&packet[..256], packet.len(), 0).expect("good");
    assert_eq!((layout.count, layout.headers, layout.v6), (5, 60, true));
    assert_eq!(layout.target, "fd00:77::2".parse::<IpAddr>().expect("an address"));
    assert_eq!(cut(&packet, &layout, 0, 5), packet, "a whole packet stays as it is");
    for (from, to) in [(0, 1), (1, 3), (3, 5), (4, 5)] {
        let piece = cut(&packet, &layout, from, to);
        assert_eq!(usize::from(read16(&piece, VIRTIO + 4)), piece.len() - VIRTIO - 40);
        let number = VIRTIO + 44;
        let number = u32::from_be_bytes(piece[number..number + 4].try_into().expect("four"));
        assert_eq!(number, 0xffff_f000_u32.wrapping_add(from * 1_000));
        assert_eq!(piece[VIRTIO..VIRTIO + 4], packet[VIRTIO..VIRTIO + 4], "class and label");
        assert_eq!(piece[VIRTIO + 6..VIRTIO + 40], packet[VIRTIO + 6..VIRTIO + 40]);
        let again = Layout::of(&piece, piece.len(), 0).expect("a good piece");
        assert_eq!(again.count, to - from);
        assert_eq!(sealed_sum6(&piece), 0xffff, "TCP checksum of {from} to {to}");
    }
    // A mark changes only the class: IPv6 has no checksum of its header.
    assert!(layout.is_ect(&packet));
    let mut marked = cut(&packet, &layout, 0, 1);
    let unmarked = marked.clone();
    layout.mark(&mut marked);
    assert_eq!(marked[VIRTIO + 1], 0x30 | packet[VIRTIO + 1] & 0x0f);
    assert_eq!(
        (&marked[..VIRTIO + 1], &marked[VIRTIO + 2..]),
        (&unmarked[..VIRTIO + 1], &unmarked[VIRTIO + 2..])
    );
}

#[test]
fn packets_over_ipv6_are_joined() {
    let packet = tcp6(2_000, 1_000, 0x18);
    let layout = Layout::of(&packet[..256], packet.len(), 0).expect("good");
    let [one, two] = [(0, 1), (1, 2)].map(|(from, to)| cut(&packet, &layout, from, to));
    let layouts = [&one, &two].map(|piece| Layout::of(piece, piece.len(), 0).expect("good"));
    let first = Tcp::of(&layouts[0], &one).expect("data");
    let second = Tcp::of(&layouts[1], &two).expect("data");
    assert!(second.alike(&two, &first, &one));
    let mut other = two.clone();
    other[VIRTIO + 3] ^= 1;
    let second = Tcp::of(&layouts[1], &other).expect("data");
    assert!(!second.alike(&other, &first, &one), "another flow label");
    let mut head = [0; MAX_HEADER_BYTES];
    let len = join(&layouts[0], &one, 2_000, (&layouts[1], &two), &mut head);
    let joined = [&head[..len], &packet[VIRTIO + 60..]].concat();
    assert_eq!(joined, packet, "what was cut is whole again");
}

#[test]
fn strange_packets_over_ipv6_are_strange() {
    let good = tcp6(3_000, 1_000, 0x10);
    let change = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        Layout::of(&bad, bad.len(), 0)
    };
    assert!(change(VIRTIO, 0x40).is_err(), "a version that is not in the rest");
    assert!(change(1, GSO_TCP4).is_err(), "a super-packet of IPv4");
    assert!(change(VIRTIO + 6, 0).is_err(), "a super-packet with an extension");
    assert!(change(VIRTIO + 4, 0xff).is_err(), "longer than it is");
    assert!(change(VIRTIO + 52, 1 << 4).is_err(), "a short TCP header");
    assert!(Layout::of(&good[..VIRTIO + 39], VIRTIO + 39, 0).is_err());
    // A packet with an extension header is one packet.
    let mut single = good.clone();
    (single[0], single[1], single[VIRTIO + 6]) = (0, 0, 0);
    let layout = Layout::of(&single, single.len(), 0).expect("one packet");
    assert_eq!((layout.count, Tcp::of(&layout, &single)), (1, None));
}

#[test]
fn strange_packets_are_strange() {
    let good = tcp(3_000, 1_000, 0x10, 0);
    let change = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        Layout::of(&bad, bad.len(), 0)
    };
    assert!(change(VIRTIO, 0x65).is_err(), "IPv6");
    assert!(change(VIRTIO, 0x41).is_err(), "a short IP header");
    assert!(change(1, 4).is_err(), "a kind of super-packet that we did not ask for");
    assert!(change(VIRTIO + 2, 0xff).is_err(), "longer than it is");
    for words in 0..5 {
        assert!(change(VIRTIO + 32, words << 4).is_err(), "a TCP header of {words} words");
    }
    assert!(Layout::of(&good[..20], 20, 0).is_err());
    assert!(Layout::of(&[], 0, ETHERNET).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pieces_hold_every_byte_once_with_right_sums(
        payload in 1_usize..20_000,
        segment in 100_u16..2_000,
        options in (0_usize..=10).prop_map(|n| n * 4),
        cuts in proptest::collection::vec(0_u32..200, 0..4),
    ) {
        let packet = tcp(payload, segment, 0x18, options);
        let layout = Layout::of(&packet[..packet.len().min(256)], packet.len(), 0).expect("good");
        let mut cuts: Vec<u32> = cuts.into_iter().filter(|cut| *cut < layout.count).collect();
        cuts.extend([0, layout.count]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut next = sequence(&packet);
        let mut bytes = Vec::new();
        for pair in cuts.windows(2) {
            let piece = cut(&packet, &layout, pair[0], pair[1]);
            let headers = VIRTIO + layout.headers as usize;
            if layout.count > 1 {
                prop_assert_eq!(sequence(&piece), next);
                next = next.wrapping_add((piece.len() - headers) as u32);
                bytes.extend_from_slice(&piece[headers..]);
            }
            prop_assert_eq!(usize::from(read16(&piece, VIRTIO + 2)), piece.len() - VIRTIO);
            prop_assert_eq!(fold(add(0, &piece[VIRTIO..VIRTIO + 20])), 0xffff, "IP checksum");
            let again = Layout::of(&piece, piece.len(), 0).expect("a good piece");
            prop_assert_eq!(again.count, pair[1] - pair[0]);
            let mut sealed = piece.clone();
            seal(&mut sealed);
            let l4 = (piece.len() - VIRTIO - 20) as u32;
            let sum = pseudo(&sealed[VIRTIO..], l4);
            prop_assert_eq!(fold(add(sum, &sealed[VIRTIO + 20..])), 0xffff, "TCP checksum");
        }
        if layout.count > 1 {
            prop_assert_eq!(&bytes[..], &packet[VIRTIO + layout.headers as usize..]);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        gso in prop_oneof![Just(0_u8), Just(1), Just(4), Just(5), any::<u8>()],
        extra in 0_usize..65_536,
        l2 in prop_oneof![Just(0_usize), Just(ETHERNET)],
    ) {
        let mut bytes = bytes;
        if bytes.len() > VIRTIO + l2 + 20 {
            bytes[1] = gso;
            bytes[VIRTIO + l2] = if extra.is_multiple_of(2) { 0x45 } else { 0x60 };
        }
        let len = bytes.len() + extra;
        let head = &bytes[..bytes.len().min(256)];
        let len = if head.len() < 256 { head.len() } else { len };
        if let Ok(layout) = Layout::of(head, len, l2) {
            let mut out = [0; MAX_HEADER_BYTES];
            for i in 0..layout.count.min(5) {
                let headers = layout.compose(head, i, i + 1, &mut out);
                layout.mark(&mut out[..headers]);
                let (a, b) = layout.offsets(i, i + 1);
                prop_assert!(a <= b && b <= len);
            }
        }
        let mut sealed = bytes;
        seal(&mut sealed);
    }
}
