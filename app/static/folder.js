// A folder of images, one sub-folder per class, handed to an upload button as a zip that is packed here: a browser
// sends files without the folders they are in. Large images are made smaller first, since the model looks at far smaller
// ones and a phone's would fill the zip. What is not an image stays where it is. Nothing is read before it is known that
// all may be taken, and a line tells how far it is.
({ words, most, bytes, endings, side }) => {
  const IMAGE = new RegExp(`\\.(${endings.join("|")})$`, "i");
  const SHRINKABLE = /^image\/(jpeg|png|webp)$/;
  const SMALL = 256 << 10; // bytes of an image that is sent as it is
  const QUALITY = 0.92;
  const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);

  const TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
    for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (0xedb88320 & -(value & 1));
    return value;
  });
  const crc32 = (data) => {
    let rest = ~0;
    for (const byte of data) rest = (rest >>> 8) ^ TABLE[(rest ^ byte) & 255];
    return ~rest >>> 0;
  };
  // Little-endian fields, each [bytes, value].
  const fields = (...parts) =>
    new Uint8Array(parts.flatMap(([size, value]) => Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 255)));
  const zipFields = (name, data) => [
    [2, 20], [2, 0x800], [2, 0], [2, 0], [2, 33], [4, crc32(data)], [4, data.length], [4, data.length], [2, name.length], [2, 0],
  ];

  // The image upright, its shorter side no larger than `side`; as it is where it is small, or the browser cannot read it.
  const shrink = async (file) => {
    if (file.size <= SMALL || !SHRINKABLE.test(file.type)) return file;
    try {
      const image = await createImageBitmap(file, { imageOrientation: "from-image" });
      const scale = side / Math.min(image.width, image.height);
      if (scale >= 1) return file;
      const canvas = document.createElement("canvas");
      canvas.width = Math.round(image.width * scale);
      canvas.height = Math.round(image.height * scale);
      const context = canvas.getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      image.close();
      const made = await new Promise((done) => canvas.toBlob(done, file.type, QUALITY));
      return made && made.size < file.size ? made : file;
    } catch {
      return file;
    }
  };
  // The zip, or null where it would be too large. `report` gets how many are packed.
  const makeZip = async (files, report) => {
    const body = [];
    const index = [];
    let at = 0;
    for (const [place, file] of files.entries()) {
      report(place);
      const name = new TextEncoder().encode(file.webkitRelativePath);
      const data = new Uint8Array(await (await shrink(file)).arrayBuffer());
      const about = zipFields(name, data);
      const head = fields([4, 0x04034b50], ...about);
      index.push(fields([4, 0x02014b50], [2, 20], ...about, [2, 0], [2, 0], [2, 0], [4, 0], [4, at]), name);
      body.push(head, name, data);
      at += head.length + name.length + data.length;
      if (at > bytes.file) return null;
    }
    const size = index.reduce((sum, part) => sum + part.length, 0);
    const count = files.length;
    const end = fields([4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, at], [2, 0]);
    const zip = new Blob([...body, ...index, end], { type: "application/zip" });
    return zip.size > bytes.file ? null : zip;
  };

  // Sentences that say why a folder cannot be taken, before any of it is read.
  const faultsOf = (title, files, room) => {
    if (files.length === 0) return [fill(words.no_pictures, { name: title })];
    if (files.length > room) return [fill(words.many_pictures, { name: title, count: files.length, most: room })];
    const large = files.filter((file) => file.size > bytes.image);
    return large.map((file) => fill(words.too_large, { name: file.name, most: bytes.image >> 20 }));
  };
  const addStatusLine = (target) => {
    const line = document.createElement("p");
    line.className = "at-note at-packing";
    line.setAttribute("role", "status");
    (target.closest(".at-buttons") ?? target).after(line);
    return line;
  };
  const pack = async (target, chosen, room) => {
    const title = chosen[0].webkitRelativePath.split("/")[0];
    const files = chosen.filter((file) => !file.name.startsWith(".") && IMAGE.test(file.name));
    const found = faultsOf(title, files, room);
    window.atlasShowAlert(target, found);
    if (found.length > 0) return;
    const line = addStatusLine(target);
    try {
      const zip = await makeZip(files, (done) => {
        line.textContent = fill(words.packing, { name: title, done, count: files.length });
      });
      if (!zip) return window.atlasShowAlert(target, [fill(words.large_folder, { name: title, most: bytes.file >> 20 })]);
      const box = new DataTransfer();
      box.items.add(new File([zip], `${title}.zip`, { type: "application/zip" }));
      target.files = box.files;
      target.dispatchEvent(new Event("change", { bubbles: true }));
    } catch {
      window.atlasShowAlert(target, [fill(words.unread_folder, { name: title })]);
    } finally {
      line.remove();
    }
  };
  const packing = new Set();
  window.atlasFolder = (name) => {
    if (packing.has(name)) return;
    const picker = document.createElement("input");
    picker.type = "file";
    picker.webkitdirectory = true;
    picker.addEventListener("change", async () => {
      if (picker.files.length === 0 || packing.has(name)) return;
      packing.add(name);
      const target = document.getElementById(`${name}-zip`).parentElement.querySelector("input[type=file]");
      await pack(target, [...picker.files], most[name] ?? most.others);
      packing.delete(name);
    });
    picker.click();
  };
}
