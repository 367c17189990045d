// Buttons that copy what stands beside them: lines of code, or the whole address of a link.
({ copied }) => {
  const write = async (words) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(words);
    const field = document.createElement("textarea"); // where the page is not served safely, the old way
    field.value = words;
    document.body.appendChild(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copies]");
    if (!button) return;
    const source = button.parentElement.querySelector(button.dataset.copies);
    await write(source.href ?? source.textContent);
    const label = button.textContent;
    if (label === copied) return;
    button.textContent = copied;
    setTimeout(() => (button.textContent = label), 2000);
  });
}
