// The button that records sound.

import { phrase } from "../strings/phrase.js";
import { byId } from "./dom.js";
import { hideNotice, showNotice } from "./notices.js";
import { asWav } from "./sounds.js";

const state = { recorder: null, seconds: 0 };

/** Bind the button. `recorded(file)` gets what was recorded, as WAV. */
export function startMicrophone(recorded) {
  byId("record").onclick = () => (state.recorder ? state.recorder.stop() : record(recorded));
}

/** Show the button if sounds of some `seconds` can be used. Browsers have microphones only over HTTPS or on
 * localhost. */
export function allowMicrophone(seconds) {
  state.seconds = seconds;
  byId("record").hidden = !seconds || !navigator.mediaDevices;
}

async function record(recorded) {
  hideNotice();
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch {
    showNotice(phrase("composer.no_microphone"));
    return;
  }
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  const timer = setTimeout(() => recorder.stop(), 950 * state.seconds);
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  recorder.onstop = async () => {
    clearTimeout(timer);
    for (const track of stream.getTracks()) track.stop();
    show(null);
    let wav;
    try {
      wav = await asWav(new File(pieces, phrase("composer.recording")));
    } catch {
      showNotice(phrase("composer.nothing_recorded"));
      return;
    }
    recorded(wav);
  };
  recorder.start();
  show(recorder);
}

function show(recorder) {
  state.recorder = recorder;
  const button = byId("record");
  button.title = button.ariaLabel = recorder ? phrase("composer.record_end") : phrase("composer.record");
  button.classList.toggle("recording", Boolean(recorder));
  button.querySelector("use").setAttribute("href", recorder ? "#icon-stop" : "#icon-record");
}
