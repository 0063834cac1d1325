//! Which addresses a call may reach.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// How far a call reaches.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Reach {
    /// Public addresses.
    Public,
    /// Also private ones, but no cloud metadata.
    Private,
    /// All.
    Everything,
}

/// What sort of address it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Public,
    Private,
    Metadata,
}

/// Addresses at which cloud providers tell a machine its secrets, outside 169.254.0.0/16.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
];
/// The same by IPv6.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // Amazon
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),   // Scaleway
];
/// Names of such services, which a proxy would resolve for us.
const METADATA_NAMES: [&str; 4] = ["metadata", "metadata.google.internal", "metadata.goog", "instance-data"];

/// Why a call may not reach a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refused {
    host: String,
    /// What the host's name stands for, when it is not the address itself.
    address: Option<IpAddr>,
    is_metadata: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused to connect to {}", self.host)?;
        if let Some(address) = self.address {
            write!(f, " ({address})")?;
        }
        let what = if self.is_metadata { "an address of cloud metadata" } else { "an address that is not public" };
        write!(f, ": it is {what}; the setting `web.private_addresses: allow` permits it")
    }
}

impl std::error::Error for Refused {}

/// Checks what can be seen without asking for the host's addresses: addresses that stand in the URL
/// in any form, and well-known names.
pub(super) fn check_url(url: &Url, reach: Reach) -> Result<(), Refused> {
    let (host, kind) = match url.host() {
        Some(Host::Ipv4(address)) => (address.to_string(), kind_v4(address)),
        Some(Host::Ipv6(address)) => (format!("[{address}]"), kind_v6(address)),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            let is_metadata = METADATA_NAMES.iter().any(|it| it.eq_ignore_ascii_case(name));
            (name.to_owned(), if is_metadata { Kind::Metadata } else { Kind::Public })
        }
        None => return Ok(()),
    };
    if reaches(reach, kind) {
        Ok(())
    } else {
        Err(Refused { host, address: None, is_metadata: kind == Kind::Metadata })
    }
}

/// What sort of address it is; one that carries an IPv4 address inside is what that one is, too.
pub(super) fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

/// The addresses of a name that a call may reach.
///
/// # Errors
/// [`Refused`] when there are addresses, and none of them is for this call; else what the system's
/// resolver says.
pub(super) async fn lookup(
    name: &str,
    reach: Reach,
) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let found: Vec<_> = tokio::net::lookup_host((name, 0)).await?.collect();
    let (allowed, denied): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| reaches(reach, kind(it.ip())));
    match denied.first() {
        Some(first) if allowed.is_empty() => {
            let is_metadata = kind(first.ip()) == Kind::Metadata;
            Err(Refused { host: name.to_owned(), address: Some(first.ip()), is_metadata }.into())
        }
        _ => Ok(allowed),
    }
}

/// Resolves names for a client, and leaves out the addresses that are out of reach: what is checked
/// is what is connected to.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardedResolver(pub(super) Reach);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found = lookup(name.as_str(), reach).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn reaches(reach: Reach, kind: Kind) -> bool {
    match reach {
        Reach::Everything => true,
        Reach::Private => kind != Kind::Metadata,
        Reach::Public => kind == Kind::Public,
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    let [a, b, ..] = address.octets();
    if address.is_link_local() || METADATA_V4.contains(&address) {
        return Kind::Metadata;
    }
    let is_private = a == 0
        || a == 127
        || address.is_private()
        || (a == 100 && (64..128).contains(&b)) // shared by the customers of one carrier, and VPNs
        || (address.octets().starts_with(&[192, 0, 0])) // protocol assignments
        || a >= 224; // multicast, reserved, broadcast
    if is_private { Kind::Private } else { Kind::Public }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    if METADATA_V6.contains(&address) {
        return Kind::Metadata;
    }
    let [a, b, ..] = address.segments();
    let is_private = address.is_unspecified()
        || address.is_loopback()
        || a & 0xfe00 == 0xfc00 // unique local
        || a & 0xffc0 == 0xfe80 // link-local
        || a & 0xffc0 == 0xfec0 // site-local, of old
        || a & 0xff00 == 0xff00 // multicast
        || (a == 0x64 && b == 0xff9b && address.segments().get(2) == Some(&1)); // local NAT64
    let own = if is_private { Kind::Private } else { Kind::Public };
    embedded_v4(address).into_iter().map(kind_v4).fold(own, Kind::max)
}

/// The IPv4 addresses that packets to this one may end up at.
fn embedded_v4(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // `::` and `::1` are themselves.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => vec![],
        // Mapped, translated, and compatible addresses.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => vec![v4(high, low)],
        // NAT64, with the usual prefix and with one of the network's own.
        [0x64, 0xff9b, _, _, _, _, high, low] => vec![v4(high, low)],
        // 6to4
        [0x2002, high, low, ..] => vec![v4(high, low)],
        // Teredo: its server, and its client with all bits turned.
        [0x2001, 0, high, low, _, _, turned_high, turned_low] => vec![v4(high, low), v4(!turned_high, !turned_low)],
        // ISATAP
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => vec![v4(high, low)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r050_r051_literal_addresses_are_recognised_in_every_form() {
        for (url, expected) in [
            ("http://169.254.169.254/latest/meta-data/", Kind::Metadata),
            ("http://[::ffff:169.254.169.254]/", Kind::Metadata),
            ("http://[::ffff:a9fe:a9fe]/", Kind::Metadata),
            ("http://[::169.254.169.254]/", Kind::Metadata),
            ("http://[::ffff:0:169.254.169.254]/", Kind::Metadata),
            ("http://[64:ff9b::169.254.169.254]/", Kind::Metadata),
            ("http://[64:ff9b:1::a9fe:a9fe]/", Kind::Metadata),
            ("http://[2002:a9fe:a9fe::1]/", Kind::Metadata),
            ("http://[2001:0:a9fe:a9fe::1]/", Kind::Metadata),
            ("http://[2001:db8::5efe:169.254.169.254]/", Kind::Metadata),
            ("http://2852039166/", Kind::Metadata),
            ("http://0xa9fea9fe/", Kind::Metadata),
            ("http://0251.0376.0251.0376/", Kind::Metadata),
            ("http://169.254.169.254./", Kind::Metadata),
            ("http://169.254.43518/", Kind::Metadata),
            ("http://１６９.254.169.254/", Kind::Metadata),
            ("http://169%2e254.169.254/", Kind::Metadata),
            ("http://user:pass@169.254.169.254:80/", Kind::Metadata),
            ("http://169.254.170.2/v2/credentials", Kind::Metadata),
            ("http://[fd00:ec2::254]/", Kind::Metadata),
            ("http://[fd00:0ec2:0:0:0:0:0:0254]/", Kind::Metadata),
            ("http://100.100.100.200/", Kind::Metadata),
            ("http://[::ffff:100.100.100.200]/", Kind::Metadata),
            ("http://[::ffff:6464:64c8]/", Kind::Metadata),
            ("http://168.63.129.16/", Kind::Metadata),
            ("http://metadata.google.internal/", Kind::Metadata),
            ("http://METADATA.google.internal./", Kind::Metadata),
            ("http://0x7f.1/", Kind::Private),
            ("http://127.1/", Kind::Private),
            ("http://127.255.0.1/", Kind::Private),
            ("http://0/", Kind::Private),
            ("http://0.0.0.0/", Kind::Private),
            ("http://[::]/", Kind::Private),
            ("http://[::1]/", Kind::Private),
            ("http://[::ffff:127.0.0.1]/", Kind::Private),
            ("http://[64:ff9b::7f00:1]/", Kind::Private),
            ("http://[64:ff9b:1::8.8.8.8]/", Kind::Private),
            ("http://10.0.0.1/", Kind::Private),
            ("http://172.16.0.1/", Kind::Private),
            ("http://172.31.255.255/", Kind::Private),
            ("http://192.168.1.1/", Kind::Private),
            ("http://100.64.0.1/", Kind::Private),
            ("http://255.255.255.255/", Kind::Private),
            ("http://224.0.0.1/", Kind::Private),
            ("http://[fe80::1]/", Kind::Private),
            ("http://[fc00::1]/", Kind::Private),
            ("http://[fd12:3456::1]/", Kind::Private),
            ("http://[ff02::1]/", Kind::Private),
            ("http://8.8.8.8/", Kind::Public),
            ("http://172.32.0.1/", Kind::Public),
            ("http://100.128.0.1/", Kind::Public),
            ("http://[2606:4700::1111]/", Kind::Public),
            ("http://[64:ff9b::8.8.8.8]/", Kind::Public),
            ("http://example.com/", Kind::Public),
        ] {
            let parsed = Url::parse(url).unwrap();
            for (reach, is_allowed) in [
                (Reach::Public, expected == Kind::Public),
                (Reach::Private, expected != Kind::Metadata),
                (Reach::Everything, true),
            ] {
                assert_eq!(check_url(&parsed, reach).is_ok(), is_allowed, "{url} {reach:?}");
            }
        }
    }

    #[tokio::test]
    async fn r050_names_are_judged_by_their_addresses() {
        let err = lookup("localhost", Reach::Public).await.unwrap_err();
        let refused = err.downcast_ref::<Refused>().unwrap();
        assert!(refused.address.is_some_and(|it| it.is_loopback()) && !refused.is_metadata);
        assert!(refused.to_string().contains("`web.private_addresses: allow`"), "{refused}");
        assert!(lookup("localhost", Reach::Private).await.is_ok_and(|it| !it.is_empty()));
    }
}
