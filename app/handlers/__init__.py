"""What happens when a visitor presses a button: plain functions and generators that know no Gradio.

A generator yields frozen dataclasses (`RunProgress`, `ForgetProgress` …); the tabs and `api` turn them into
what the page or a program is shown.
"""
