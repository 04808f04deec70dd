// From the file of a sound to what the server reads of it: one channel of 16 kHz and 16 bits, as WAV.

import { dataUri } from "../data/data_uri.js";

const MAX_SECONDS = 60; // 2.6 MB of a request, which may have 4 MB
const RATE = 16_000; // hertz
const HEADER = 44; // bytes

/** Whether a file is a sound. */
export const isSound = ({ type }) => type.startsWith("audio/");

/** The seconds of a sound that can be attached, for a model that reads up to `seconds`. */
export const longestSound = (seconds) => Math.min(seconds, MAX_SECONDS);

/** A data URI of a sound as WAV. Throws DOMException if the browser cannot read it, and RangeError if it is
 * longer than `seconds`. */
export async function readSound(file, seconds) {
  const wav = await asWav(file);
  if (wav.size > HEADER + 2 * RATE * seconds) throw new RangeError(`${wav.size} bytes`);
  return dataUri(wav);
}

/** The file of a sound as WAV, which each server reads. Throws DOMException if the browser cannot read it. */
export async function asWav(file) {
  const decoder = new OfflineAudioContext(1, 1, RATE); // resamples to its rate
  const sound = await decoder.decodeAudioData(await file.arrayBuffer());
  return new File([header(sound.length), samples(sound)], `${file.name}.wav`, { type: "audio/wav" });
}

// The mean of the channels.
function samples(sound) {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at));
  return Int16Array.from(channels[0], (_, at) => {
    const mean = channels.reduce((sum, channel) => sum + channel[at], 0) / channels.length;
    return Math.round(32767 * Math.max(-1, Math.min(1, mean)));
  });
}

function header(length) {
  const view = new DataView(new ArrayBuffer(HEADER));
  const text = (at, word) => [...word].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt()));
  const bytes = 2 * length;
  text(0, "RIFF");
  view.setUint32(4, HEADER - 8 + bytes, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes that follow about the format
  view.setUint16(20, 1, true); // integers
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true); // bytes of a sample
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, bytes, true);
  return view;
}
