//! Markdown from HTML.

use std::{rc::Rc, time::Duration};

use htmd::{HtmlToMarkdown, Node};

/// Bytes of HTML that are converted at most; a larger page stays as it is.
const MAX_SOURCE_BYTES: usize = 4 * 1024 * 1024;
/// How deep elements may be nested; the converter recurses, and deeper pages stay as they are.
const MAX_DEPTH: usize = 200;
/// How long a conversion may take; a page that needs longer stays as it is.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Elements that say nothing to a reader.
const SKIPPED: [&str; 5] = ["head", "title", "script", "style", "template"];

/// Converts a page; `None` when it is too large, too deep or too slow.
pub(super) async fn from_html(html: &str) -> Option<String> {
    if html.len() > MAX_SOURCE_BYTES {
        return None;
    }
    let html = html.to_owned();
    let work = tokio::task::spawn_blocking(move || convert(&html));
    tokio::time::timeout(MAX_WAIT, work).await.ok()?.ok()?
}

fn convert(html: &str) -> Option<String> {
    // Without scripts, what pages keep for readers without scripts is part of them.
    let converter = HtmlToMarkdown::builder().skip_tags(SKIPPED.to_vec()).scripting_enabled(false).build();
    let tree = converter.html_to_tree(html).ok()?;
    is_shallow(&tree).then(|| converter.tree_to_markdown(&tree))
}

fn is_shallow(tree: &Rc<Node>) -> bool {
    let mut pending = vec![(tree.clone(), 0)];
    while let Some((node, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return false;
        }
        pending.extend(node.children.borrow().iter().map(|it| (it.clone(), depth + 1)));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_become_markdown_without_what_is_not_read() {
        let html = "<html><head><title>T</title><style>p{}</style></head><body><h1>Head</h1><script>x()</script>\
                    <p>One <a href='/b'>link</a></p><noscript><p>plain</p></noscript><ul><li>a<li>b</ul></body></html>";
        assert_eq!(from_html(html).await.unwrap(), "# Head\n\nOne [link](/b)\n\nplain\n\n*   a\n*   b");
    }

    #[tokio::test]
    async fn deep_and_large_pages_stay_as_they_are() {
        assert_eq!(from_html(&"<div>".repeat(100_000)).await, None);
        assert_eq!(from_html(&"<b>".repeat(100_000)).await, None);
        assert_eq!(from_html(&"<ul><li>".repeat(90)).await.map(|_| ()), Some(()));
        assert_eq!(from_html(&"x".repeat(MAX_SOURCE_BYTES + 1)).await, None);
    }
}
