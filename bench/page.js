const panels = JSON.parse(document.getElementById("figures").textContent);
document.querySelectorAll("figure").forEach((figure, i) => {
  const panel = panels[i], card = figure.querySelector(".values");
  const hide = () => {
    card.style.visibility = "hidden";
    figure.querySelectorAll(".cross").forEach(c => c.style.visibility = "hidden");
  };
  figure.querySelectorAll("svg[data-left]").forEach(svg => {
    const left = +svg.dataset.left, right = +svg.dataset.right, low = +svg.dataset.low, high = +svg.dataset.high;
    const cross = svg.querySelector(".cross");
    const show = event => {
      const box = svg.getBoundingClientRect(), frame = figure.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      const at = low + ((event.clientX - box.left) / scale - left) / (right - left) * (high - low);
      let nearest = 0;
      panel.places.forEach((place, k) => { if (Math.abs(place - at) < Math.abs(panel.places[nearest] - at)) nearest = k; });
      const x = left + (panel.places[nearest] - low) / (high - low) * (right - left);
      cross.setAttribute("x1", x);
      cross.setAttribute("x2", x);
      cross.style.visibility = "visible";
      const title = document.createElement("b");
      title.textContent = panel.x + ": " + panel.sizes[nearest];
      card.replaceChildren(title);
      panel.names.forEach((name, k) => {
        const value = panel.values[nearest][k];
        if (!value) return;
        const line = document.createElement("span");
        line.className = "c" + panel.colours[k];
        line.textContent = name + ": " + value;
        card.append(line);
      });
      // The card stands on the side of the line where there is more room, and never leaves the page.
      const middle = box.left - frame.left + x * scale;
      const place = middle > frame.width / 2 ? middle - card.offsetWidth - 12 : middle + 12;
      card.style.left = Math.max(0, Math.min(place, frame.width - card.offsetWidth)) + "px";
      card.style.top = box.top - frame.top + 12 + "px";
      card.style.visibility = "visible";
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") hide(); });
  });
});
