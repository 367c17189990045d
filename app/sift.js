// Files that cannot be taken are told of before they are sent, each by its name with the remedy; the others go on. Gradio
// would refuse all of them at once, and say only that an error occurred.
({ words, most, bytes }) => {
  const PICTURE = /\.(avif|bmp|gif|heic|heif|jfif|jpe?g|png|svg|tiff?|webp)$/i; // those the server has a sentence for
  const filled = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const fits = (file, accept) =>
    accept.includes("image/*")
      ? file.type.startsWith("image/") || PICTURE.test(file.name)
      : accept.some((ending) => file.name.toLowerCase().endsWith(ending));
  const fault = (file, accept) => {
    const name = file.name;
    if (!fits(file, accept))
      return accept.includes("image/*")
        ? filled(words.no_picture, { name })
        : filled(words.other_ending, { name, ending: accept.join(", ") });
    const room = accept.includes("image/*") ? bytes.picture : bytes.file;
    if (file.size <= room) return "";
    return filled(accept.includes(".zip") ? words.large_zip : words.too_large, { name, most: room >> 20 });
  };
  const too_much = (files) => {
    const sum = files.reduce((so_far, file) => so_far + file.size, 0);
    return sum > bytes.all ? [filled(words.too_much, { sum: Math.ceil(sum / (1 << 20)), most: bytes.all >> 20 })] : [];
  };
  const zone_of = (input) => input.closest(".at-drop");
  const sifted = (input, files) => {
    const room = most[zone_of(input)?.id] ?? most.others;
    if (files.length > room) return [[], [filled(words.too_many, { count: files.length, most: room })]];
    const accept = input.accept.split(",").map((one) => one.trim()).filter(Boolean);
    const faults = accept.length === 0 ? files.map(() => "") : files.map((file) => fault(file, accept));
    const good = files.filter((_, place) => !faults[place]);
    const more = too_much(good);
    return [more.length > 0 ? [] : good, [...faults.filter(Boolean), ...more]];
  };
  const forget = () => document.querySelectorAll(".at-sifted").forEach((one) => one.remove());
  const tell = (input, sentences) => {
    forget();
    if (sentences.length === 0) return;
    const alert = document.createElement("div");
    alert.className = "at-alert at-sifted";
    alert.setAttribute("role", "alert");
    for (const sentence of sentences) alert.appendChild(document.createElement("p")).textContent = sentence;
    (input.closest(".at-class, .at-buttons") ?? zone_of(input) ?? input).after(alert);
  };
  window.atlasTell = tell; // for files that are looked at elsewhere
  const given = (files) => {
    const box = new DataTransfer();
    files.forEach((file) => box.items.add(file));
    return box.files;
  };
  const on_choice = (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || input.type !== "file" || !input.isConnected) return;
    const [good, sentences] = sifted(input, [...input.files]);
    if (input.dataset.told) delete input.dataset.told; // what is left of a drop that was told of already
    else tell(input, sentences);
    if (sentences.length === 0) return;
    input.files = given(good);
    if (good.length === 0) event.stopImmediatePropagation();
  };
  const on_drop = (event) => {
    const input = event.target.closest?.(".at-drop")?.querySelector("input[type=file]");
    if (!input) return;
    const [good, sentences] = sifted(input, [...event.dataTransfer.files]);
    if (sentences.length === 0) return forget();
    event.preventDefault();
    event.stopImmediatePropagation();
    tell(input, sentences);
    if (good.length === 0) return;
    input.files = given(good);
    input.dataset.told = "yes";
    input.dispatchEvent(new Event("change", { bubbles: true }));
  };
  document.addEventListener("change", on_choice, true);
  document.addEventListener("drop", on_drop, true);
  document.addEventListener("click", (event) => event.target.closest?.(".at-start") && forget(), true);
}
