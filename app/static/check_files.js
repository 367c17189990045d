// Files that cannot be taken are told of before they are sent, each by its name with the remedy; the others go on. Gradio
// would refuse all of them at once, and say only that an error occurred.
({ words, most, bytes, endings }) => {
  const IMAGE = new RegExp(`\\.(${endings.join("|")})$`, "i");
  const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const fits = (file, accept) =>
    accept.includes("image/*")
      ? file.type.startsWith("image/") || IMAGE.test(file.name)
      : accept.some((ending) => file.name.toLowerCase().endsWith(ending));
  const faultOf = (file, accept) => {
    const name = file.name;
    if (!fits(file, accept))
      return accept.includes("image/*")
        ? fill(words.no_picture, { name })
        : fill(words.other_ending, { name, ending: accept.join(", ") });
    const room = accept.includes("image/*") ? bytes.image : bytes.file;
    if (file.size <= room) return "";
    return fill(accept.includes(".zip") ? words.large_zip : words.too_large, { name, most: room >> 20 });
  };
  const sizeFault = (files) => {
    const sum = files.reduce((total, file) => total + file.size, 0);
    return sum > bytes.all ? [fill(words.too_much, { sum: Math.ceil(sum / (1 << 20)), most: bytes.all >> 20 })] : [];
  };
  const zoneOf = (input) => input.closest(".at-drop");
  const check = (input, files) => {
    const room = most[zoneOf(input)?.id] ?? most.others;
    if (files.length > room) return [[], [fill(words.too_many, { count: files.length, most: room })]];
    const accept = input.accept.split(",").map((one) => one.trim()).filter(Boolean);
    const faults = accept.length === 0 ? files.map(() => "") : files.map((file) => faultOf(file, accept));
    const good = files.filter((_, place) => !faults[place]);
    const tooMuch = sizeFault(good);
    return [tooMuch.length > 0 ? [] : good, [...faults.filter(Boolean), ...tooMuch]];
  };
  const clearAlert = () => document.querySelectorAll(".at-sifted").forEach((one) => one.remove());
  const showAlert = (input, sentences) => {
    clearAlert();
    if (sentences.length === 0) return;
    const alert = document.createElement("div");
    alert.className = "at-alert at-sifted";
    alert.setAttribute("role", "alert");
    for (const sentence of sentences) alert.appendChild(document.createElement("p")).textContent = sentence;
    (input.closest(".at-class, .at-buttons") ?? zoneOf(input) ?? input).after(alert);
  };
  window.atlasShowAlert = showAlert; // for files that are checked elsewhere
  const asFileList = (files) => {
    const box = new DataTransfer();
    files.forEach((file) => box.items.add(file));
    return box.files;
  };
  const onChoice = (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || input.type !== "file" || !input.isConnected) return;
    const [good, sentences] = check(input, [...input.files]);
    if (input.dataset.told) delete input.dataset.told; // the rest of a drop that was told of already
    else showAlert(input, sentences);
    if (sentences.length === 0) return;
    input.files = asFileList(good);
    if (good.length === 0) event.stopImmediatePropagation();
  };
  const onDrop = (event) => {
    const input = event.target.closest?.(".at-drop")?.querySelector("input[type=file]");
    if (!input) return;
    const [good, sentences] = check(input, [...event.dataTransfer.files]);
    if (sentences.length === 0) return clearAlert();
    event.preventDefault();
    event.stopImmediatePropagation();
    showAlert(input, sentences);
    if (good.length === 0) return;
    input.files = asFileList(good);
    input.dataset.told = "yes";
    input.dispatchEvent(new Event("change", { bubbles: true }));
  };
  document.addEventListener("change", onChoice, true);
  document.addEventListener("drop", onDrop, true);
  document.addEventListener("click", (event) => event.target.closest?.(".at-start, #ask") && clearAlert(), true);
}
