//! Settings of the section `web`.

use bub_kernel::tool::Caller;
use serde::Deserialize;

use super::guard::Reach;

/// How `web.fetch` works.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub struct WebSettings {
    /// How pages of HTML read.
    pub render_html: RenderHtml,
    /// Most bytes of a body, after decompression; beyond it the fetch fails.
    pub max_bytes: u64,
    /// Who may reach addresses that are not public.
    pub private_addresses: PrivateAddresses,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            render_html: RenderHtml::default(),
            max_bytes: 10 * 1024 * 1024,
            private_addresses: PrivateAddresses::default(),
        }
    }
}

/// How pages of HTML read. The structured result always has the page itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum RenderHtml {
    /// As Markdown made from them.
    #[default]
    Markdown,
    /// As they are.
    Raw,
}

/// Who may reach loopback, private, link-local and unique-local addresses.
///
/// The addresses of cloud metadata services are for nobody unless it is [`PrivateAddresses::Allow`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum PrivateAddresses {
    /// Sessions of the local terminal, and commands that people type anywhere.
    #[default]
    Auto,
    /// Everybody, and everything.
    Allow,
    /// Commands alone.
    Deny,
}

impl PrivateAddresses {
    /// How far a call reaches.
    pub(super) fn reach(self, is_local: bool, caller: Caller) -> Reach {
        match self {
            Self::Allow => Reach::Everything,
            Self::Auto if is_local => Reach::Private,
            Self::Auto | Self::Deny if caller == Caller::Command => Reach::Private,
            Self::Auto | Self::Deny => Reach::Public,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_depends_on_setting_place_and_caller() {
        use PrivateAddresses::{Allow, Auto, Deny};
        for (setting, is_local, caller, expected) in [
            (Auto, true, Caller::Model, Reach::Private),
            (Auto, true, Caller::Code, Reach::Private),
            (Auto, false, Caller::Model, Reach::Public),
            (Auto, false, Caller::Code, Reach::Public),
            (Auto, false, Caller::Command, Reach::Private),
            (Deny, true, Caller::Model, Reach::Public),
            (Deny, false, Caller::Command, Reach::Private),
            (Allow, false, Caller::Code, Reach::Everything),
        ] {
            assert_eq!(setting.reach(is_local, caller), expected, "{setting:?} {is_local} {caller:?}");
        }
    }
}
