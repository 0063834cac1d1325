//! What a body is, and its text.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// Bytes at the beginning of a page in which it may name its charset.
const META_BYTES: usize = 1024;
/// Bytes at the beginning of a body that tell text from data.
const HEAD_BYTES: usize = 8 * 1024;

/// A content type as a server states it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ContentType {
    /// In lower case, without parameters; empty when the server states none.
    essence: String,
    charset: Option<String>,
}

/// What a content type promises.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Promise {
    Text,
    Data,
    /// Nothing: the bytes decide.
    Unknown,
}

impl ContentType {
    /// Reads a header's value.
    pub(super) fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let charset = parts
            .filter_map(|it| it.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
            .map(|(_, value)| value.trim().trim_matches(['"', '\'']).to_owned());
        Self { essence, charset }
    }

    /// The type that results name.
    pub(super) fn name(&self) -> &str {
        if self.essence.is_empty() { "application/octet-stream" } else { &self.essence }
    }

    pub(super) fn is_html(&self) -> bool {
        matches!(self.essence.as_str(), "text/html" | "application/xhtml+xml")
    }

    /// What the type promises about the bytes.
    pub(super) fn promise(&self) -> Promise {
        let (family, subtype) = self.essence.split_once('/').unwrap_or_default();
        let (subtype, suffix) = subtype.rsplit_once('+').unwrap_or((subtype, ""));
        let is_text_format = |it| TEXT_FORMATS.contains(&it);
        if family == "text" || is_text_format(suffix) || (family == "application" && is_text_format(subtype)) {
            return Promise::Text;
        }
        let is_data = matches!(family, "image" | "audio" | "video" | "font" | "model")
            || (family == "application" && DATA_FORMATS.contains(&subtype));
        if is_data { Promise::Data } else { Promise::Unknown }
    }

    /// The charset that the server states, if it is a known one.
    fn encoding(&self) -> Option<&'static Encoding> {
        self.charset.as_ref().and_then(|it| Encoding::for_label(it.as_bytes()))
    }
}

/// Formats of `application/…` and suffixes of others that are text.
const TEXT_FORMATS: [&str; 24] = [
    "ecmascript",
    "graphql",
    "javascript",
    "json",
    "json-seq",
    "json5",
    "jsonl",
    "jsonlines",
    "markdown",
    "ndjson",
    "rtf",
    "sql",
    "toml",
    "typescript",
    "x-javascript",
    "x-ndjson",
    "x-sh",
    "x-shellscript",
    "x-tex",
    "x-www-form-urlencoded",
    "x-yaml",
    "xml",
    "xml-dtd",
    "yaml",
];

/// Formats of `application/…` that are not, so that nothing of them needs to be loaded.
const DATA_FORMATS: [&str; 13] = [
    "epub",
    "gzip",
    "java-archive",
    "msword",
    "pdf",
    "vnd.rar",
    "wasm",
    "x-7z-compressed",
    "x-bzip2",
    "x-rar-compressed",
    "x-tar",
    "x-xz",
    "zip",
];

/// `None` when the bytes are text; else the type that they seem to be.
pub(super) fn data_type(content_type: &ContentType, bytes: &[u8]) -> Option<String> {
    let stated = || content_type.name().to_owned();
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    if bytes.is_empty() || is_wide(content_type, head) {
        return None;
    }
    match content_type.promise() {
        Promise::Data => return Some(stated()),
        Promise::Text => return memchr::memchr(0, head).is_some().then(|| seems(head).map_or_else(stated, Into::into)),
        Promise::Unknown => {}
    }
    if let Some(known) = seems(head) {
        return Some(known.to_owned());
    }
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        // The head may end inside a character.
        Err(err) => err.error_len().is_none() && head.len() < bytes.len(),
    };
    let is_text = (is_utf8 || content_type.encoding().is_some()) && memchr::memchr(0, head).is_none();
    (!is_text).then(stated)
}

/// The text of a body: by the charset of the header, else of the byte order mark, else of the page
/// itself, else UTF-8. Bytes that are wrong become replacement characters; a mark is no text.
pub(super) fn decode(content_type: &ContentType, bytes: &[u8]) -> String {
    let of_mark = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let encoding = content_type
        .encoding()
        // `utf-16` says nothing about the order of bytes; the mark does.
        .map(|stated| of_mark.filter(|it| is_utf16(stated) && is_utf16(it)).unwrap_or(stated))
        .or(of_mark)
        .or_else(|| meta_charset(bytes.get(..META_BYTES).unwrap_or(bytes)))
        .unwrap_or(UTF_8);
    encoding.decode_with_bom_removal(bytes).0.into_owned()
}

/// Whether zero bytes are part of the text.
fn is_wide(content_type: &ContentType, head: &[u8]) -> bool {
    let encoding = content_type.encoding().or_else(|| Encoding::for_bom(head).map(|(encoding, _)| encoding));
    encoding.is_some_and(is_utf16)
}

fn is_utf16(encoding: &Encoding) -> bool {
    encoding == UTF_16LE || encoding == UTF_16BE
}

/// The type that the first bytes of data give away.
fn seems(head: &[u8]) -> Option<&'static str> {
    infer::get(head).filter(|it| it.matcher_type() != infer::MatcherType::Text).map(|it| it.mime_type())
}

/// The charset that a page of HTML or XML names in its first bytes.
fn meta_charset(head: &[u8]) -> Option<&'static Encoding> {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let tags = text.split('<').filter(|it| it.starts_with("meta") || it.starts_with("?xml"));
    tags.filter_map(|it| it.split_once('>').map(|(tag, _)| tag)).find_map(|tag| {
        let key = if tag.starts_with("?xml") { "encoding" } else { "charset" };
        let (_, rest) = tag.split_once(key)?;
        let value = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
        let label = value.split(['"', '\'', ';', '/', '?', ' ', '\t', '\n', '\r']).next()?;
        let encoding = Encoding::for_label(label.as_bytes())?;
        // It was read byte by byte, so it is not UTF-16, whatever it says.
        Some(if is_utf16(encoding) { UTF_8 } else { encoding })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn types_promise_text_data_or_nothing() {
        for (header, expected) in [
            ("text/html; charset=utf-8", Promise::Text),
            ("TEXT/Plain", Promise::Text),
            ("application/json", Promise::Text),
            ("application/ld+json;charset=\"UTF-8\"", Promise::Text),
            ("image/svg+xml", Promise::Text),
            ("application/atom+xml", Promise::Text),
            ("application/x-yaml", Promise::Text),
            ("image/png", Promise::Data),
            ("application/pdf", Promise::Data),
            ("application/epub+zip", Promise::Data),
            ("video/mp4", Promise::Data),
            ("application/octet-stream", Promise::Unknown),
            ("", Promise::Unknown),
            ("nonsense", Promise::Unknown),
        ] {
            assert_eq!(ContentType::parse(header).promise(), expected, "{header}");
        }
    }

    #[test]
    fn charset_is_the_headers_then_the_marks_then_the_pages_then_utf8() {
        let cases: [(&str, &[u8], &str); 14] = [
            ("text/plain", "é😀".as_bytes(), "é😀"),
            ("text/plain", b"a\xffb", "a\u{fffd}b"),
            ("text/plain; charset=ISO-8859-1", b"\xe9", "é"),
            ("text/plain; charset=\"gbk\"", b"\xd6\xd0\xce\xc4", "中文"),
            ("text/plain; charset=no-such", "é".as_bytes(), "é"),
            ("text/plain", b"\xef\xbb\xbfx", "x"),
            ("text/plain", b"\xff\xfea\0b\0", "ab"),
            ("text/plain; charset=utf-16be", b"\0a\0b", "ab"),
            ("text/plain; charset=utf-16", b"\xfe\xff\0a\0b", "ab"),
            ("text/plain; charset=utf-16", b"\xff\xfea\0b\0", "ab"),
            ("text/html", b"<meta charset=\"shift_jis\">\x93\xfa", "<meta charset=\"shift_jis\">日"),
            (
                "text/html",
                b"<META http-equiv=x content=\"text/html; charset=gb2312\">\xd6\xd0",
                "<META http-equiv=x content=\"text/html; charset=gb2312\">中",
            ),
            ("text/html; charset=utf-8", "<meta charset=gbk>中".as_bytes(), "<meta charset=gbk>中"),
            (
                "application/xml",
                b"<?xml version=\"1.0\" encoding='windows-1252'?>\xe9",
                "<?xml version=\"1.0\" encoding='windows-1252'?>é",
            ),
        ];
        for (header, bytes, expected) in cases {
            assert_eq!(decode(&ContentType::parse(header), bytes), expected, "{header}");
        }
    }

    #[test]
    fn data_is_told_from_text_by_type_and_bytes() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice();
        let cases: [(&str, &[u8], Option<&str>); 13] = [
            ("", png, Some("image/png")),
            ("application/octet-stream", png, Some("image/png")),
            ("text/plain", png, Some("image/png")),
            ("image/png", png, Some("image/png")),
            ("", b"%PDF-1.4\n%\xe2\xe3", Some("application/pdf")),
            ("application/octet-stream", b"\xff\xd0\x81\x02", Some("application/octet-stream")),
            ("application/octet-stream", b"a\0b", Some("application/octet-stream")),
            ("application/octet-stream", "fn main() {} // é".as_bytes(), None),
            ("", b"plain", None),
            ("", b"<html>hi", None),
            ("", b"", None),
            ("text/plain; charset=utf-16le", b"a\0b\0", None),
            ("application/x-unknown; charset=gbk", b"\xd6\xd0", None),
        ];
        for (header, bytes, expected) in cases {
            assert_eq!(data_type(&ContentType::parse(header), bytes).as_deref(), expected, "{header} {bytes:?}");
        }
        // A character that the head cuts in two is still text.
        let long = format!("{}é", "x".repeat(HEAD_BYTES - 1));
        assert_eq!(data_type(&ContentType::default(), long.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_and_no_header_break_it(header in ".{0,40}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let content_type = ContentType::parse(&header);
            data_type(&content_type, &bytes);
            decode(&content_type, &bytes);
        }
    }
}
