"use strict";
// Copy buttons are made here, so that a page without scripts shows none.
(function () {
  function fallback(text) {
    var area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "offscreen";
    document.body.appendChild(area);
    area.select();
    var done = false;
    try { done = document.execCommand("copy"); } catch (error) { done = false; }
    area.remove();
    return done;
  }
  function say(button, text) {
    button.textContent = text;
    document.getElementById("said").textContent = text;
    setTimeout(function () { button.textContent = "Copy"; }, 2000);
  }
  function select(node) {
    var range = document.createRange();
    range.selectNodeContents(node);
    var selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }
  document.querySelectorAll("[data-copy]").forEach(function (box) {
    var code = box.querySelector("code");
    var button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy: " + code.textContent.slice(0, 80));
    button.addEventListener("click", function () {
      var text = code.textContent;
      // A sandboxed frame has no clipboard permission: then the old command, then the selection itself.
      function other() {
        if (fallback(text)) { say(button, "Copied"); button.focus(); return; }
        select(code);
        say(button, "Press Ctrl+C");
      }
      if (navigator.clipboard && window.isSecureContext) {
        navigator.clipboard.writeText(text).then(function () { say(button, "Copied"); }, other);
      } else { other(); }
    });
    box.appendChild(button);
  });
  // On a narrow screen the picture starts at the task that failed first.
  var failed = document.querySelector(".dag .node.s-failed-first");
  if (failed) {
    var region = failed.closest(".scroll");
    var box = failed.getBoundingClientRect();
    region.scrollLeft += box.left + box.width / 2 - region.getBoundingClientRect().left - region.clientWidth / 2;
  }
  // A printed page shows what is folded on the screen.
  var opened = [];
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not([open])").forEach(function (d) { d.open = true; opened.push(d); });
  });
  addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
    opened = [];
  });
})();
