// Whoever closes the page in the middle of a run is asked first: what was learned so far would be lost. The Stop
// buttons are there only while a run lasts.
({ leaving }) => {
  const STOPS = "#stop-adapting, #forget-stop";
  window.addEventListener("beforeunload", (event) => {
    if (!document.querySelector(STOPS)) return;
    event.preventDefault();
    event.returnValue = leaving;
  });
}
