//! Numbers of distillation, with units and reasons.

use std::time::Duration;

/// Pixels of a picture, read or made: the largest camera pictures, 200 MB as pixels.
pub const PIXELS_MAX: u64 = 50_000_000;
/// Pixels in a row or a column; what WebP can have at most.
pub const SIDE_MAX: u32 = 16_383;
/// Frames of a picture that moves.
pub const FRAMES_MAX: u32 = 200;
/// A drawing (SVG) that is drawn: large maps have some MB, and go out as they are.
pub const SVG_BYTES_MAX: usize = 1 << 20;
/// Of its parts, counted with texts between them.
pub const SVG_NODES_MAX: u32 = 20_000;
/// Parts within parts: for each may be laid out what the whole has of pixels.
pub const SVG_DEPTH_MAX: usize = 24;
/// Places where it repeats a part of itself; each may double it.
pub const SVG_USES_MAX: usize = 16;
/// Pixels that it is drawn with in a row or a column, at most.
pub const SVG_SIDE: u32 = 2048;
/// Pixels times shapes: about two seconds of a processor.
pub const SVG_WORK_MAX: u64 = 1 << 30;
/// Dashes of one line, about.
pub const SVG_DASHES_MAX: f32 = 100_000.0;
/// Passes of a progressive JPEG: encoders make about ten; each costs the whole picture anew.
pub const JPEG_SCANS_MAX: usize = 64;
/// Bytes that a decoder may lay out, beside the pixels: 8 for each pixel.
pub const DECODE_BYTES_MAX: usize = 8 * PIXELS_MAX as usize;
/// What the decoder of PNG may lay out: rows, and chunks that are unpacked (a colour profile).
pub const PNG_BYTES_MAX: usize = 16 << 20;
/// A colour profile: those with tables have half of it.
pub const PROFILE_BYTES_MAX: usize = 4 << 20;
/// Pixels of all frames of what is kept moving, read and made; what has more becomes its first frame. A processor takes some seconds
/// for so many.
pub const MOVING_PIXELS_MAX: u64 = 120_000_000;
pub const MOVING_MADE_PIXELS_MAX: u64 = 50_000_000;
/// Pixels of a watermark.
pub const MARK_PIXELS_MAX: u64 = 4_000_000;
/// Bytes of a watermark's file.
pub const MARK_BYTES_MAX: usize = 1 << 20;
/// Longest side of the copy in which the part with most to see is looked for.
pub const SMART_SIDE: u32 = 200;
/// Under this nothing is worth the while: it is one packet anyway.
pub const SMALL_BYTES: usize = 1024;
/// JPEG quality where nothing else was said: imgproxy's is 80, ours is for slow lines.
pub const QUALITY: u8 = 60;

/// Pixels that are decoded at a time in one clone, over all pictures, in millions.
pub const MEGAPIXELS_AT_ONCE: u32 = 100;
/// Pictures that wait for a processor; more get their originals.
pub const WAITING_MAX: usize = 64;

/// A file that is fetched.
pub const FETCH_BYTES_MAX: usize = 32 << 20;
/// From the question to the last byte.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(20);
/// For name and connection.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Until an origin begins to answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// A page whose next bytes do not come for so long is cut.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Addresses of one name that are tried.
pub const ADDRESSES_MAX: usize = 4;
/// Redirects that are followed, each checked anew.
pub const REDIRECTS_MAX: u8 = 5;
/// Files that are fetched at a time; more wait, and are given up with their time.
pub const FETCHES_AT_ONCE: usize = 64;
/// Hosts' ports that are reached outside; an origin that is declared may have any.
pub const PORTS: [u16; 2] = [80, 443];
/// The one port that tunnels of the proxy lead to, but those to declared origins.
pub const TUNNEL_PORT: u16 = 443;
/// Connections of the proxy in one clone, and tunnels among them: a browser has some dozens.
pub const PROXIED_MAX: usize = 1024;
/// A connection of the proxy that says nothing for so long ends; a tunnel, too.
pub const PROXY_IDLE: Duration = Duration::from_secs(300);
/// The head of a request at the proxy has to come within this.
pub const PROXY_HEAD_TIME: Duration = Duration::from_secs(30);
/// Bytes of one part of a host name: what DNS has.
pub const LABEL_BYTES_MAX: usize = 63;
/// Who has said who he is need not do so again for so long.
pub const PASS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Wrong passwords that a clone hears from one address in such a time; then it hears none of there until it is over.
pub const WRONG_MAX: u32 = 30;
pub const WRONG_SPAN: Duration = Duration::from_secs(60);
/// Addresses from which wrong ones came, that are remembered.
pub const WRONG_FROM_MAX: usize = 4096;
/// Header of an origin's answer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// A body that is passed on to one's own site.
pub const UPLOAD_BYTES_MAX: usize = 32 << 20;
/// Memory of one page that is rewritten; what needs more goes on as it is.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// Text between two tags that is looked through for words in one piece.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// A path with its query: what edges and browsers take.
pub const URL_BYTES_MAX: usize = 8 << 10;
/// Pictures of one page that are counted.
pub const PICTURES_MAX: usize = 256;

/// Words that are marked, and letters of one.
pub const WORDS_MAX: usize = 20;
pub const WORD_CHARS_MAX: usize = 40;
/// A form of preferences.
pub const FORM_BYTES_MAX: usize = 4 << 10;
/// Preferences that nobody changed for so long are forgotten.
pub const PREFERENCES_KEPT: Duration = Duration::from_secs(180 * 24 * 3600);
/// A page does not wait longer for its reader's preferences; then those seen last hold.
pub const PREFERENCES_WAIT: Duration = Duration::from_secs(3);
/// People whose last preferences a clone remembers for that.
pub const PEOPLE_MAX: usize = 10_000;

/// What was made of pictures, kept by content: bytes in one clone.
pub const KEPT_BYTES_MAX: usize = 64 << 20;
/// Originals and pictures of more bytes are not shared among the clones: class `cache` takes 4 MiB.
pub const SHARED_BYTES_MAX: usize = 4 << 20;
/// How long a request waits for what another clone fetches.
pub const SHARED_WAIT: Duration = Duration::from_secs(8);
/// An original is not kept as fresh for longer, whatever its origin says.
pub const FRESH_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// ... and so much longer for when its origin cannot be asked.
pub const STALE_KEPT: Duration = Duration::from_secs(24 * 3600);
/// An origin that failed is left alone so long, by all clones.
pub const FAILED_KEPT: Duration = Duration::from_secs(2);
/// A source that is not for everybody is not waited for so long.
pub const APART_KEPT: Duration = Duration::from_secs(30);
/// A picture that is broken is not tried anew for so long.
pub const BAD_KEPT: Duration = Duration::from_secs(60);
/// One that could not be made for want of a processor.
pub const BUSY_KEPT: Duration = Duration::from_millis(500);
/// A request waits so long for its picture; then the nearest one goes out, and it is made all the same.
pub const MAKE_WAIT: Duration = Duration::from_secs(4);
/// A picture is left to the clone that makes it for so long.
pub const MAKE_TIME_MAX: Duration = Duration::from_secs(15);
/// Variants of an original that are remembered, and originals of which a clone remembers some.
pub const VARIANTS_MAX: usize = 24;
pub const CONTENTS_MAX: usize = 2000;
/// Pictures that are made afterwards at a time, in one clone; when one is tried again, and how often.
pub const REPAIRS_MAX: usize = 32;
pub const REPAIR_EVERY: Duration = Duration::from_millis(700);
pub const REPAIR_TRIES: usize = 20;

/// A picture is made as AVIF when who reads that has asked a clone for it so often ...
pub const AVIF_ASKED: u32 = 4;
/// ... and it has so many pixels at most: some seconds of a processor, and 200 MB or so.
pub const AVIF_PIXELS_MAX: u64 = 2_000_000;
/// How much its thread gives way: all that there is.
pub const NICE: u8 = 19;
/// Pictures of which a clone counts that: 40 B each.
pub const OFTEN_MAX: usize = 20_000;

/// Sizes of pictures, before and after, that a clone remembers.
pub const SIZES_MAX: usize = 20_000;

/// An answer that stands in for a better one is asked for anew after so many seconds.
pub const STAND_IN_SECONDS: u32 = 5;
/// A picture that was made is good for so many seconds, where its origin says nothing.
pub const MADE_SECONDS: u32 = 3600;

const _: () = assert!(PIXELS_MAX <= MEGAPIXELS_AT_ONCE as u64 * 1_000_000, "each picture can have its turn");
const _: () = assert!(CONNECT_TIME_MAX.as_secs() < FETCH_TIME_MAX.as_secs(), "another address can be tried");
/// Clones tell each other what they made so often, and in pieces of so many bytes: a broadcast has 16 KiB.
pub const TELL_EVERY: Duration = Duration::from_millis(300);
pub const TELL_BYTES_MAX: usize = 12 << 10;
/// Links of a page that are open at a time.
pub const OPEN_LINKS_MAX: usize = 64;
