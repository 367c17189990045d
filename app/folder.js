// A folder of pictures, one sub-folder per class, handed to an upload button as a zip that is packed here: a browser
// sends files without the folders they are in. Nothing is compressed, since pictures are already.
() => {
  const crc32 = (bytes) => {
    let rest = ~0;
    for (const byte of bytes) {
      rest ^= byte;
      for (let bit = 0; bit < 8; bit++) rest = (rest >>> 1) ^ (0xedb88320 & -(rest & 1));
    }
    return ~rest >>> 0;
  };
  // Little-endian fields, each [bytes, value].
  const fields = (...parts) =>
    new Uint8Array(parts.flatMap(([size, value]) => Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 255)));
  const described = (name, bytes) => [
    [2, 20], [2, 0x800], [2, 0], [2, 0], [2, 33], [4, crc32(bytes)], [4, bytes.length], [4, bytes.length], [2, name.length], [2, 0],
  ];
  const zipped = async (files) => {
    const body = [];
    const index = [];
    let at = 0;
    for (const file of files) {
      const name = new TextEncoder().encode(file.webkitRelativePath);
      const bytes = new Uint8Array(await file.arrayBuffer());
      const about = described(name, bytes);
      const head = fields([4, 0x04034b50], ...about);
      index.push(fields([4, 0x02014b50], [2, 20], ...about, [2, 0], [2, 0], [2, 0], [4, 0], [4, at]), name);
      body.push(head, name, bytes);
      at += head.length + name.length + bytes.length;
    }
    const size = index.reduce((sum, part) => sum + part.length, 0);
    const count = files.length;
    const end = fields([4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, at], [2, 0]);
    return new Blob([...body, ...index, end], { type: "application/zip" });
  };
  window.atlasFolder = (button) => {
    const picker = document.createElement("input");
    picker.type = "file";
    picker.webkitdirectory = true;
    picker.addEventListener("change", async () => {
      const files = [...picker.files].filter((file) => !file.name.startsWith("."));
      if (files.length === 0) return;
      const title = files[0].webkitRelativePath.split("/")[0];
      const box = new DataTransfer();
      box.items.add(new File([await zipped(files)], `${title}.zip`, { type: "application/zip" }));
      const target = document.getElementById(button).parentElement.querySelector("input[type=file]");
      target.files = box.files;
      target.dispatchEvent(new Event("change", { bubbles: true }));
    });
    picker.click();
  };
}
