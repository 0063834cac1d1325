//! Markdown from HTML.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use htmd::{HtmlToMarkdown, Node};
use html5ever::{
    ParseOpts, parse_document,
    tendril::{StrTendril, TendrilSink as _},
    tree_builder::TreeBuilderOpts,
};
use markup5ever_rcdom::{NodeData, RcDom};

/// Bytes of HTML that are converted at most; a larger page stays as it is.
const MAX_SOURCE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that are parsed between two looks at the clock.
const STEP_BYTES: usize = 16 * 1024;
/// How deep elements may be nested; the converter recurses, and deeper pages stay as they are.
const MAX_DEPTH: usize = 200;
/// How long a conversion may take; a page that needs longer stays as it is. Parsing a page made to be
/// slow takes time that grows with the square of its size.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Elements that say nothing to a reader.
const SKIPPED: [&str; 5] = ["head", "title", "script", "style", "template"];

/// Converts a page; `None` when it is too large, too deep or too slow.
pub(super) async fn from_html(html: &str) -> Option<String> {
    if html.len() > MAX_SOURCE_BYTES {
        return None;
    }
    let (html, deadline) = (html.to_owned(), Instant::now() + MAX_WAIT);
    let work = tokio::task::spawn_blocking(move || convert(&html, deadline));
    tokio::time::timeout(MAX_WAIT, work).await.ok()?.ok()?
}

fn convert(html: &str, deadline: Instant) -> Option<String> {
    let tree = parse(html, deadline)?.document;
    let converter = HtmlToMarkdown::builder().skip_tags(SKIPPED.to_vec()).build();
    prepare(&tree).then(|| converter.tree_to_markdown(&tree))
}

/// Parses step by step, as nobody can stop a thread that parses the whole.
fn parse(html: &str, deadline: Instant) -> Option<RcDom> {
    // Without scripts, what pages keep for readers without scripts is part of them.
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let mut parser = parse_document(RcDom::default(), ParseOpts { tree_builder, ..ParseOpts::default() });
    let mut rest = html;
    while !rest.is_empty() {
        let (step, later) = rest.split_at_checked(rest.floor_char_boundary(STEP_BYTES))?;
        parser.process(StrTendril::from_slice(step));
        if Instant::now() > deadline || is_deep_at_the_end(&parser.tokenizer.sink.sink.document) {
            return None;
        }
        rest = later;
    }
    Some(parser.finish())
}

/// Whether what is parsed next would be nested too deeply.
fn is_deep_at_the_end(tree: &Rc<Node>) -> bool {
    let mut node = tree.clone();
    for _ in 0..=MAX_DEPTH {
        let last = node.children.borrow().last().cloned();
        let Some(last) = last else { return false };
        node = last;
    }
    true
}

/// Cuts data that stands in addresses; `false` when the page is nested too deeply.
fn prepare(tree: &Rc<Node>) -> bool {
    let mut pending = vec![(tree.clone(), 0)];
    while let Some((node, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return false;
        }
        if let NodeData::Element { attrs, .. } = &node.data {
            let mut attrs = attrs.borrow_mut();
            let addresses = attrs.iter_mut().filter(|it| matches!(&*it.name.local, "src" | "href"));
            addresses.for_each(|it| cut_data(&mut it.value));
        }
        pending.extend(node.children.borrow().iter().map(|it| (it.clone(), depth + 1)));
    }
    true
}

/// Leaves the type of a `data:` address: a picture's bytes are nothing to read.
fn cut_data(address: &mut StrTendril) {
    let trimmed = address.trim_start();
    if trimmed.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("data:"))
        && let Some((head, _)) = trimmed.split_once(',')
    {
        *address = StrTendril::from(format!("{head},..."));
    }
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
    async fn data_in_addresses_is_cut() {
        for (html, expected) in [
            ("<img alt='a' src='data:image/png;base64,AAAABBBB'>", "![a](data:image/png;base64,...)"),
            ("<a href=' Data:,x'>t</a>", "[t](Data:,...)"),
            ("<img alt='a' src='/data:x,y'>", "![a](/data:x,y)"),
            ("<img alt='data: one, two' src='b'>", "![data: one, two](b)"),
        ] {
            assert_eq!(from_html(html).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn deep_and_large_pages_stay_as_they_are() {
        assert_eq!(from_html(&"<div>".repeat(100_000)).await, None);
        assert_eq!(from_html(&"<b>".repeat(100_000)).await, None);
        assert_eq!(from_html(&"<table><td>".repeat(100_000)).await, None);
        assert_eq!(from_html(&"<ul><li>".repeat(90)).await.map(|_| ()), Some(()));
        assert_eq!(from_html(&"x".repeat(MAX_SOURCE_BYTES + 1)).await, None);
    }
}
