# kvsim with its pages, fits and parallel sweeps, compiled.
#   docker build -t kvsim .
#   docker run --rm -v "$PWD:/work" kvsim run chat --out out/chat
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY . /source
RUN pip wheel --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/kvsim-*.whl)[report,fit,traces,sweep,interchange]" && rm -r /wheels
WORKDIR /work
ENTRYPOINT ["kvsim"]
