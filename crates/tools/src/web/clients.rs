//! The HTTP clients, made when they are first needed.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use reqwest::{Client, redirect};
use url::{Host, Url};

use super::guard::{self, GuardedResolver, Kind, Reach, Refused};

/// Which client: how far it reaches, and whether it goes through the system's proxies.
type Key = (Reach, bool);

/// The HTTP clients of one tool: at most two for each [`Reach`].
#[derive(Default)]
pub(super) struct Clients {
    made: Mutex<BTreeMap<Key, Client>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// Why there is no client for a URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Build(#[from] reqwest::Error),
}

impl Clients {
    /// The client for one hop, and whether a proxy may stand between.
    ///
    /// A proxy resolves names itself, where nothing is checked. So calls that reach public addresses
    /// alone use none; the others use the system's, but not for hosts of this machine or network,
    /// and not for names that are out of reach as far as this machine can tell.
    pub(super) async fn get(&self, url: &Url, reach: Reach) -> Result<(Client, bool), ClientError> {
        guard::check_url(url, reach)?;
        let is_proxied = reach != Reach::Public && !is_near(url, reach).await?;
        let key = (reach, is_proxied);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&key) {
            return Ok((client.clone(), is_proxied));
        }
        let client = build(reach, is_proxied)?;
        made.insert(key, client.clone());
        Ok((client, is_proxied))
    }
}

/// Whether the host is this machine or of its network.
async fn is_near(url: &Url, reach: Reach) -> Result<bool, Refused> {
    let addresses = match url.host() {
        Some(Host::Ipv4(address)) => vec![address.into()],
        Some(Host::Ipv6(address)) => vec![address.into()],
        Some(Host::Domain(name)) => match guard::lookup(name, reach).await {
            Ok(found) => found.into_iter().map(|it| it.ip()).collect(),
            Err(err) => match err.downcast::<Refused>() {
                Ok(refused) => return Err(*refused),
                // Behind a proxy, public names need not resolve.
                Err(_) => vec![],
            },
        },
        None => vec![],
    };
    Ok(addresses.into_iter().any(|it| guard::kind(it) != Kind::Public))
}

fn build(reach: Reach, is_proxied: bool) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .user_agent(concat!("bub/", env!("CARGO_PKG_VERSION")))
        // Each hop is checked, so they are followed by hand.
        .redirect(redirect::Policy::none())
        .dns_resolver(Arc::new(GuardedResolver(reach)))
        // Fetches are rare: a connection kept open would only be in the way.
        .pool_max_idle_per_host(0);
    if is_proxied { builder.build() } else { builder.no_proxy().build() }
}
