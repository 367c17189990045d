// The camera. In a class: hold a button, and about four frames a second join the class, without those that look alike.
// To try: frames are sent one at a time, small, and the next is taken only when the last is answered, so that no
// answer is ever late. The preview stands by itself, and nothing covers it.
({ camera }) => {
  const { words, side, liveSide, most } = camera;
  const EVERY = 250; // milliseconds between two frames that are recorded
  const ALIKE = 2; // of 255: frames that differ less on average are near-duplicates
  const PATIENCE = 1500; // milliseconds until a frame whose answer got lost is given up
  const THUMB = 16; // pixels across, for comparing
  const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const open = { panel: null, stream: null, facing: "environment", sent: 0 };

  const partOf = (panel, name) => panel.querySelector(`[data-camera=${name}]`);
  const say = (panel, sentence) => (panel.querySelector("[role=status]").textContent = sentence);
  const show = (panel, isOpen) => {
    panel.querySelector("video").hidden = !isOpen;
    for (const name of ["turn", "close", "take"]) partOf(panel, name)?.toggleAttribute("hidden", !isOpen);
    partOf(panel, "live")?.toggleAttribute("hidden", isOpen);
    const record = partOf(panel, "record");
    if (!record) return;
    const about = record.getAttribute("aria-label").split(": ").at(-1);
    record.textContent = isOpen ? words.hold : words.record;
    record.setAttribute("aria-label", `${record.textContent}: ${about}`);
  };
  const shut = () => {
    open.stream?.getTracks().forEach((track) => track.stop());
    if (open.panel) {
      show(open.panel, false);
      open.panel.querySelector("video").srcObject = null;
    }
    open.panel = open.stream = null;
  };
  const start = async (panel) => {
    const { facing } = open;
    shut();
    try {
      const video = { facingMode: facing, width: { ideal: 640 }, height: { ideal: 480 } };
      open.stream = await navigator.mediaDevices.getUserMedia({ video, audio: false });
    } catch {
      return say(panel, words.none);
    }
    open.panel = panel;
    const video = panel.querySelector("video");
    video.srcObject = open.stream;
    show(panel, true);
    say(panel, partOf(panel, "record") ? words.ready : "");
    await video.play();
    if (partOf(panel, "live")) answerLive(panel);
  };

  // A frame as a canvas whose shorter side is `size`.
  const grab = (video, size) => {
    const scale = size / Math.min(video.videoWidth, video.videoHeight);
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(video.videoWidth * scale);
    canvas.height = Math.round(video.videoHeight * scale);
    canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
    return canvas;
  };
  const thumbOf = (frame) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = THUMB;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(frame, 0, 0, THUMB, THUMB);
    return context.getImageData(0, 0, THUMB, THUMB).data;
  };
  const difference = (one, other) => one.reduce((sum, value, place) => sum + Math.abs(value - other[place]), 0) / one.length;
  const asFile = (frame, name) =>
    new Promise((done) => frame.toBlob((blob) => done(new File([blob], name, { type: "image/jpeg" })), "image/jpeg", 0.9));
  const handOver = async (panel, frames) => {
    const box = new DataTransfer();
    const stamp = Date.now();
    for (const [place, frame] of frames.entries()) box.items.add(await asFile(frame, `camera-${stamp}-${place + 1}.jpg`));
    const input = document.querySelector(`#${panel.dataset.zone} input[type=file]`);
    input.files = box.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  };

  // Recording lasts while the button is held.
  const recording = { timer: 0, frames: [], thumbs: [] };
  const isReady = (video) => video.readyState >= 2 && video.videoWidth > 0;
  const record = (panel) => {
    const video = panel.querySelector("video");
    if (recording.frames.length >= most || !isReady(video)) return;
    const frame = grab(video, side);
    const thumb = thumbOf(frame);
    if (recording.thumbs.some((one) => difference(one, thumb) < ALIKE)) return;
    recording.frames.push(frame);
    recording.thumbs.push(thumb);
    say(panel, fill(words.recording, { count: recording.frames.length }));
  };
  const hold = (panel) => {
    if (recording.timer || open.panel !== panel) return;
    Object.assign(recording, { frames: [], thumbs: [] });
    record(panel);
    recording.timer = setInterval(record, EVERY, panel);
    panel.classList.add("at-recording");
  };
  const letGo = async () => {
    const panel = open.panel;
    if (!recording.timer || !panel) return;
    clearInterval(recording.timer);
    recording.timer = 0;
    panel.classList.remove("at-recording");
    const frames = recording.frames;
    if (frames.length === 0) return say(panel, words.alike);
    await handOver(panel, frames);
    say(panel, fill(words.recorded, { count: frames.length }));
  };

  // Live answers: one frame is under way at a time.
  const isAnswered = (number) => Number(document.querySelector("#live-answer [data-frame]")?.dataset.frame ?? -1) >= number;
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  const answerLive = async (panel) => {
    const video = panel.querySelector("video");
    const stream = open.stream;
    while (open.panel === panel && open.stream === stream) {
      if (video.offsetParent === null) return shut(); // another tab of the page is in sight
      if (document.hidden || !isReady(video) || !window.atlasSendFrame) {
        await wait(100);
        continue;
      }
      const number = ++open.sent;
      window.atlasSendFrame({ frame: grab(video, liveSide).toDataURL("image/jpeg", 0.85), number });
      const until = performance.now() + PATIENCE;
      while (!isAnswered(number) && performance.now() < until) await wait(15);
    }
  };

  const panelOf = (event) => event.target.closest?.(".at-camera");
  const isRecord = (event) => event.target.closest?.("[data-camera=record]");
  const HELD_KEYS = [" ", "Enter"];
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest?.("[data-camera]")?.dataset.camera;
    const panel = panelOf(event);
    if (!pressed || !panel) return;
    if (pressed === "close") return shut();
    if (pressed === "take") return handOver(panel, [grab(panel.querySelector("video"), side)]);
    if (pressed === "turn") open.facing = open.facing === "user" ? "environment" : "user";
    if (pressed === "turn" || open.panel !== panel) start(panel);
  });
  document.addEventListener("pointerdown", (event) => isRecord(event) && hold(panelOf(event)));
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, letGo);
  document.addEventListener("keydown", (event) => {
    if (!isRecord(event) || !HELD_KEYS.includes(event.key) || open.panel !== panelOf(event)) return;
    event.preventDefault();
    hold(panelOf(event));
  });
  document.addEventListener("keyup", (event) => HELD_KEYS.includes(event.key) && letGo());
  document.addEventListener("contextmenu", (event) => isRecord(event) && event.preventDefault()); // of a long press
}
