//! Server-sent events, cut out of a byte stream.

use std::ops::Range;

/// Cuts a byte stream into the data of its events. Lines end with LF, CRLF or CR; comments, names
/// and ids of events are skipped. The cost is linear however the bytes are cut.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    buffer: Vec<u8>,
    /// Where the line being read starts.
    line: usize,
    /// Up to where the line being read was searched for its end.
    scanned: usize,
    /// Whether the last line ended with a CR, whose LF may still come.
    after_cr: bool,
    data: Data,
}

/// The data of the event being read.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// One line, still in the buffer: the usual case, without a copy.
    Line(Range<usize>),
    /// Several lines.
    Joined(Vec<u8>),
}

/// The data of one event.
pub(crate) type Event<'a> = std::borrow::Cow<'a, [u8]>;

impl SseParser {
    /// Adds what came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let used = match &self.data {
            Data::Line(range) => range.start.min(self.line),
            Data::None | Data::Joined(_) => self.line,
        };
        if used > 0 {
            self.buffer.drain(..used);
            self.line -= used;
            self.scanned -= used;
            if let Data::Line(range) = &mut self.data {
                *range = range.start - used..range.end - used;
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes of an event that is not complete are held.
    pub(crate) fn pending(&self) -> usize {
        let joined = if let Data::Joined(text) = &self.data { text.len() } else { 0 };
        self.buffer.len().saturating_sub(self.line).saturating_add(joined)
    }

    /// The next complete event, if there is one.
    pub(crate) fn next_event(&mut self) -> Option<Event<'_>> {
        loop {
            if self.after_cr && self.line < self.buffer.len() {
                self.after_cr = false;
                if self.buffer.get(self.line) == Some(&b'\n') {
                    self.line += 1;
                    self.scanned = self.line;
                }
            }
            let rest = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(at) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.scanned = self.buffer.len();
                return None;
            };
            let end = self.scanned + at;
            self.after_cr = self.buffer.get(end) == Some(&b'\r');
            let is_blank = end == self.line;
            self.read_line(self.line..end);
            self.line = end + 1;
            self.scanned = self.line;
            if is_blank && !matches!(self.data, Data::None) {
                return self.take();
            }
        }
    }

    /// The last event, when the stream ended without a blank line or even within a line.
    pub(crate) fn finish(&mut self) -> Option<Event<'_>> {
        let end = self.buffer.len();
        if self.line < end {
            self.read_line(self.line..end);
            self.line = end;
            self.scanned = end;
        }
        self.take()
    }

    fn take(&mut self) -> Option<Event<'_>> {
        match std::mem::take(&mut self.data) {
            Data::None => None,
            Data::Line(range) => self.buffer.get(range).map(Event::Borrowed),
            Data::Joined(text) => Some(Event::Owned(text)),
        }
    }

    fn read_line(&mut self, range: Range<usize>) {
        let line = self.buffer.get(range.clone()).unwrap_or_default();
        // A byte order mark may precede the first field.
        let field = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let Some(value) = field.strip_prefix(b"data:") else { return };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let range = range.end - value.len()..range.end;
        self.data = match std::mem::take(&mut self.data) {
            Data::None => Data::Line(range),
            Data::Line(first) => {
                let mut text = self.buffer.get(first).unwrap_or_default().to_vec();
                text.push(b'\n');
                text.extend_from_slice(value);
                Data::Joined(text)
            }
            Data::Joined(mut text) => {
                text.push(b'\n');
                text.extend_from_slice(value);
                Data::Joined(text)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut parser = SseParser::default();
        let mut found = Vec::new();
        for piece in pieces {
            parser.push(piece);
            while let Some(event) = parser.next_event() {
                found.push(String::from_utf8(event.into_owned()).unwrap());
            }
        }
        found.extend(parser.finish().map(|it| String::from_utf8(it.into_owned()).unwrap()));
        found
    }

    #[test]
    fn events_are_cut_at_blank_lines_of_any_kind() {
        for newline in ["\n", "\r\n", "\r"] {
            let text = ": hi\n\ndata: a\n\nevent: ping\nid: 4\n\ndata:b\ndata:  c\n\n\n\ndata\ndata: d";
            let text = text.replace('\n', newline);
            let expected = ["a", "b\n c", "d"];
            assert_eq!(events([text.as_bytes()]), expected, "{newline:?}");
            assert_eq!(events(text.as_bytes().chunks(1)), expected, "{newline:?} in bytes");
        }
    }

    #[test]
    fn odd_streams_lose_nothing() {
        assert_eq!(events([b"\xEF\xBB\xBFdata: a\n\n".as_slice()]), ["a"]);
        assert_eq!(events([b"data: a".as_slice()]), ["a"]);
        assert_eq!(events([b"data: a\r".as_slice(), b"\n".as_slice(), b"data: b\r\n\r\n".as_slice()]), ["a\nb"]);
        assert_eq!(events([b"".as_slice(), b"\n\n".as_slice(), b": only\n\n".as_slice()]), [""; 0]);
        assert_eq!(events([b"data:\n\n".as_slice()]), [""]);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(
            text in r"((data: ?|: |event:)?[a-z漢😀]{0,4}(\n|\r\n|\r)){0,12}",
            cuts in prop::collection::vec(1_usize..7, 1..20),
        ) {
            let mut rest = text.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = left;
            }
            prop_assert_eq!(events(pieces), events([text.as_bytes()]));
        }
    }
}
