//! Frames between the host and the worker: a length, a kind, a number and a body.

/// Bytes before the body: length of the body (4), kind (1), number (4), little-endian.
pub(super) const HEADER: usize = 9;
/// Longest body in bytes: a value and the name of its call. Whoever would send more says so instead.
pub(super) const MAX_BODY: usize = crate::values::MAX_VALUE_BYTES + 64 * 1024;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// To the worker: code to run, as JSON of [`super::worker::Run`].
    Run = 1,
    /// To the worker: the JSON result of call `number`.
    Value = 2,
    /// To the worker: the text of the error of call `number`.
    Error = 3,
    /// From the worker: printed text.
    Output = 16,
    /// From the worker: call `number`; name, NUL, arguments as JSON.
    Call = 17,
    /// From the worker: call `number` is a pause of so many milliseconds (decimal text).
    Sleep = 18,
    /// From the worker: the code ended.
    Done = 19,
    /// From the worker: the code raised; error, NUL, traceback.
    Failed = 20,
    /// From the worker: it cannot run code at all; the reason.
    Broken = 21,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Run,
        Self::Value,
        Self::Error,
        Self::Output,
        Self::Call,
        Self::Sleep,
        Self::Done,
        Self::Failed,
        Self::Broken,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) body: Vec<u8>,
}

/// Bytes that are not a frame.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("frame of {0} bytes is longer than {MAX_BODY}")]
    TooLong(usize),
}

/// Appends a frame to `out`.
pub(super) fn encode(kind: Kind, number: u32, body: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    out.reserve(HEADER + body.len());
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind as u8);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(body);
}

/// The header of the frame at the start of `bytes`, or `None` while it is not whole.
pub(super) fn header(bytes: &[u8]) -> Result<Option<(Kind, u32, usize)>, Malformed> {
    let Some(([l0, l1, l2, l3, kind, n0, n1, n2, n3], _)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_le_bytes([*l0, *l1, *l2, *l3])).unwrap_or(usize::MAX);
    if length > MAX_BODY {
        return Err(Malformed::TooLong(length));
    }
    let kind = Kind::from_byte(*kind).ok_or(Malformed::Kind(*kind))?;
    Ok(Some((kind, u32::from_le_bytes([*n0, *n1, *n2, *n3]), length)))
}

/// Takes the frame at the start of `bytes` and says how many bytes it took, or `None` while it is not whole.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
    let Some((kind, number, length)) = header(bytes)? else { return Ok(None) };
    let Some(body) = bytes.get(HEADER..HEADER + length) else { return Ok(None) };
    Ok(Some((Frame { kind, number, body: body.to_vec() }, HEADER + length)))
}

/// Both parts of a body that is two texts with a NUL between.
pub(super) fn pair(body: &[u8]) -> (String, &[u8]) {
    let at = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
    let (first, rest) = body.split_at(at);
    (String::from_utf8_lossy(first).into_owned(), rest.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_cut_anywhere_come_back_whole(
            frames in proptest::collection::vec((0_usize..9, any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            for (kind, number, body) in &frames {
                encode(Kind::ALL[*kind], *number, body, &mut bytes);
            }
            let (mut pending, mut at) = (Vec::new(), 0);
            let cut = cut.index(bytes.len() + 1);
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                pending.extend_from_slice(part);
                while let Some((frame, used)) = decode(&pending[at..]).unwrap() {
                    at += used;
                    seen.push((frame.kind as u8, frame.number, frame.body));
                }
            }
            let sent: Vec<_> = frames.into_iter().map(|(kind, number, body)| (Kind::ALL[kind] as u8, number, body)).collect();
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn frame_that_claims_too_much_is_refused() {
        assert_eq!(decode(&[0xff; HEADER]), Err(Malformed::TooLong(u32::MAX as usize)));
    }
}
